// The tiles of the wgmma kernel (kernel.cuh): one instantiation each for half and bf16, chosen by tiles/plan.cpp.
#pragma once
#include <array>

#include "attention/tiles/tile.h"

namespace xgemm::attention {

// Keys of a step: as many as registers (scores, weights, outputs) and shared memory allow. The first that serves is taken, or a
// faster one of its head size; in batch-invariant mode of its keys, too, which gives the same bits.
inline constexpr std::array kWgmmaTiles = {
    // Sequences of different lengths have one tile for each pair of head sizes that models have: each is a minute of compilation.
    // 0, 1: exponentials take as long as products: three warpgroups, unless two leave fewer rows or SMs without work. The time of
    // a row is measured: docs/log/attention.md.
    Tile{.head_size = 64, .consumers = 2, .keys = 128, .query_slots = 2, .stages = 3, .serving = Serving::unmasked, .row = 1.14},
    Tile{.head_size = 64, .consumers = 3, .keys = 128, .query_slots = 2, .stages = 2, .additive = false, .sequences = true},
    Tile{.head_size = 64, .consumers = 2, .keys = 128, .query_slots = 2, .stages = 3, .others = false},  // 2
    Tile{.head_size = 96, .consumers = 2, .keys = 128, .query_slots = 2, .stages = 2, .row = 1.1},       // 3
    // 4, 5: three warpgroups read keys and values less often
    Tile{.head_size = 96, .consumers = 3, .keys = 96, .query_slots = 2, .stages = 2, .serving = Serving::unmasked},
    Tile{.head_size = 128, .consumers = 3, .keys = 80, .query_slots = 2, .stages = 2, .serving = Serving::long_full},
    Tile{.head_size = 128, .consumers = 2, .keys = 128, .query_slots = 2, .stages = 2, .sequences = true, .row = 1.1},  // 6
    Tile{.head_size = 192,
         .value_size = 128,
         .consumers = 2,
         .keys = 112,
         .query_slots = 1,
         .stages = 2,
         .additive = false,
         .sequences = true},  // 7: latent attention's heads
    Tile{.head_size = 192, .consumers = 2, .keys = 112, .query_slots = 1, .stages = 2, .additive = false},                  // 8
    Tile{.head_size = 256, .consumers = 2, .keys = 80, .query_slots = 1, .stages = 2, .additive = false},                   // 9
    Tile{.head_size = 256, .consumers = 2, .keys = 64, .query_slots = 1, .stages = 2, .others = false, .sequences = true},  // 10
    // Decoding: limited by reading keys and values, so as many loads as possible are in flight; two CTAs if registers allow.
    Tile{.head_size = 64, .consumers = 1, .keys = 128, .query_slots = 1, .stages = 3, .ctas = 2},  // 11
    Tile{.head_size = 128, .consumers = 1, .keys = 64, .query_slots = 1, .stages = 3, .ctas = 2},  // 12
    Tile{.head_size = 256, .consumers = 1, .keys = 64, .query_slots = 1, .stages = 3},             // 13
};

}  // namespace xgemm::attention
