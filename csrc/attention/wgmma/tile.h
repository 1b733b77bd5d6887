// The tiles of the tensor-core kernel (kernel.cuh): one instantiation each for half and bf16, chosen by attention/plan.cpp.
#pragma once
#include <array>

namespace xgemm::attention {

/// When a consumer warpgroup issues its products (consumer.cuh).
enum class Schedule {
  exclusive,  ///< scores, softmax, values in turn; the warpgroups take turns at the exponentials
  overlapped  ///< the scores of the next keys are computed under the softmax, the warpgroups take turns at issuing
};

struct WgmmaTile {
  int head_size, value_size;  ///< D and Dv at most; TMA fills what is missing with zeros
  int consumers;              ///< warpgroups of 64 query rows
  int keys;                   ///< of a step of the online softmax
  int query_slots;            ///< tiles of queries in shared memory; outputs leave through their tile's slot
  int stages;                 ///< tiles of keys, and of values, in shared memory
  Schedule schedule;

  static constexpr int kBlockBytes = 128;  ///< of a row in one block of 64 columns: the width of the swizzle
  static constexpr int blocks(int columns) { return (columns + 63) / 64; }

  constexpr int rows() const { return 64 * consumers; }
  constexpr int threads() const { return 128 * (consumers + 1); }
  constexpr int query_bytes() const { return rows() * kBlockBytes * blocks(head_size > value_size ? head_size : value_size); }
  constexpr int key_bytes() const { return keys * kBlockBytes * blocks(head_size); }
  constexpr int value_bytes() const { return keys * kBlockBytes * blocks(value_size); }
  constexpr int barriers() const { return 2 * (query_slots + 2 * stages); }
  /// 1024: the swizzle is a pattern of 1024 bytes, and dynamic shared memory begins anywhere.
  constexpr int shared_bytes() const {
    return query_slots * query_bytes() + stages * (key_bytes() + value_bytes()) + 8 * barriers() + 4 * consumers + 1024;
  }
  // Registers of a thread: 65536 over all threads at launch, then the producer's go to the consumers; one has enough from the
  // start.
  constexpr bool lends_registers() const { return consumers > 1; }
  constexpr int producer_registers() const { return consumers == 3 ? 32 : 24; }
  constexpr int consumer_registers() const { return consumers == 3 ? 160 : 240; }
};

// Keys of a step: as many as registers (scores, weights, outputs) and shared memory allow. Ascending in head size.
inline constexpr std::array kWgmmaTiles = {
    // Many rows.
    WgmmaTile{64, 64, 3, 128, 2, 2, Schedule::exclusive},    // 0: exponentials take as long as the products: three warpgroups
    WgmmaTile{96, 96, 2, 128, 1, 2, Schedule::exclusive},    // 1
    WgmmaTile{128, 128, 2, 128, 2, 2, Schedule::exclusive},  // 2
    WgmmaTile{192, 128, 2, 128, 1, 2, Schedule::exclusive},  // 3: latent attention's heads
    WgmmaTile{192, 192, 2, 112, 1, 2, Schedule::exclusive},  // 4
    WgmmaTile{256, 256, 2, 80, 1, 2, Schedule::exclusive},   // 5
    // At most 64 rows a key head (decoding): bound by reading keys and values, of which as much as possible is on its way.
    WgmmaTile{64, 64, 1, 128, 1, 6, Schedule::exclusive},    // 6
    WgmmaTile{128, 128, 1, 128, 1, 3, Schedule::exclusive},  // 7
    WgmmaTile{256, 256, 1, 64, 1, 3, Schedule::exclusive},   // 8
};

}  // namespace xgemm::attention
