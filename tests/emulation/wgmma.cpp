// wgmma: each warp of a warpgroup issues on its own. A wgmma may execute when all 128 threads have issued it, and executes at
// the latest when a thread waits for it. While in flight its accumulators are NaN in the threads' own memory; each thread gets
// them at its own wait.

#include <bit>
#include <cmath>
#include <cstring>

#include "state.h"

namespace emulation {
namespace {

constexpr std::uint32_t kPoison = 0x7fedcba9;

const std::vector<float>& half_values() {
  static const std::vector<float> table = [] {
    std::vector<float> values(65536);
    for (std::uint32_t bits = 0; bits < 65536; ++bits)
      values[bits] = static_cast<float>(std::bit_cast<__half>(static_cast<std::uint16_t>(bits)));
    return values;
  }();
  return table;
}

}  // namespace

float operand_value(MmaType type, std::uint32_t bits) {
  static const float* const halves = half_values().data();
  switch (type) {
    case MmaType::f16: return halves[bits];
    case MmaType::bf16: return std::bit_cast<float>(bits << 16);
    default: return std::bit_cast<float>(bits & ~0x1fffu);
  }
}

namespace {

/// The operand in shared memory of a matrix descriptor: values[k][line].
template <MmaType kType>
void read_operand(Block& block, std::uint64_t descriptor, bool k_major, int lines, double* values, Where where) {
  const auto start = static_cast<std::uint32_t>(descriptor & 0x3fff) << 4,
             between_blocks = static_cast<std::uint32_t>(descriptor >> 16 & 0x3fff) << 4,
             between_groups = static_cast<std::uint32_t>(descriptor >> 32 & 0x3fff) << 4;
  const auto mode = static_cast<unsigned>(descriptor >> 62);
  if (mode == 0) fail("a wgmma operand without swizzle is not modelled", where);
  const std::uint32_t row_bytes = mode == 1 ? 128 : mode == 2 ? 64 : 32, mask = row_bytes / 16 - 1;
  if (!k_major && mode != 1) fail("an MN-major wgmma operand of another swizzle than 128 bytes is not modelled", where);
  using Bits = std::conditional_t<kType == MmaType::tf32, std::uint32_t, std::uint16_t>;
  constexpr int kBytes = sizeof(Bits), kDepth = 32 / kBytes, kPiece = 16 / kBytes;  // a swizzle moves pieces of 16 bytes
  std::uint32_t least = ~0u, most = 0;
  for (int line = 0; line < lines; line += k_major ? 1 : kPiece)
    for (int k = 0; k < kDepth; k += k_major ? kPiece : 1) {
      std::uint32_t place = start;
      if (k_major)
        place += static_cast<std::uint32_t>(line) / 8 * between_groups + static_cast<std::uint32_t>(line) % 8 * row_bytes +
                 static_cast<std::uint32_t>(k * kBytes);
      else
        place += static_cast<std::uint32_t>(line) / 64 * between_blocks + static_cast<std::uint32_t>(k) / 8 * between_groups +
                 static_cast<std::uint32_t>(k) % 8 * 128 + static_cast<std::uint32_t>(line) % 64 * 2;
      place ^= (place >> 7 & mask) << 4;
      least = std::min(least, place), most = std::max(most, place);
      if (place + 16 > Block::kWindow) fail("a wgmma operand is out of bounds", where);
      Bits bits[kPiece];
      std::memcpy(bits, block.window + place, 16);
      double* const to = values + k * lines + line;
      for (int i = 0; i < kPiece; ++i) to[k_major ? i * lines : i] = operand_value(kType, bits[i]);
    }
  pointer_at(block, least, most + 16 - least, 1, where);
}
void read_operand(Block& block, std::uint64_t descriptor, MmaType type, bool k_major, int lines, double* values, Where where) {
  switch (type) {
    case MmaType::f16: return read_operand<MmaType::f16>(block, descriptor, k_major, lines, values, where);
    case MmaType::bf16: return read_operand<MmaType::bf16>(block, descriptor, k_major, lines, values, where);
    default: return read_operand<MmaType::tf32>(block, descriptor, k_major, lines, values, where);
  }
}

void read_registers(const WgmmaRecord& record, double* values) {
  const MmaType type = record.shape.type;
  for (int t = 0; t < 128; ++t)
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t word = record.a[t][i];
      if (word != record.a_values[t][i])
        fail(text("a register of A has changed while a wgmma was in flight (thread ", t, " of the warpgroup)"), record.where);
      const int lane = t % 32, row = t / 32 * 16 + lane / 4 + i % 2 * 8;
      if (type == MmaType::tf32) {
        values[(lane % 4 + i / 2 * 4) * 64 + row] = operand_value(type, word);
      } else {
        const int k = lane % 4 * 2 + i / 2 * 8;
        values[k * 64 + row] = operand_value(type, word & 0xffff);
        values[(k + 1) * 64 + row] = operand_value(type, word >> 16);
      }
    }
}

void deliver(InFlight& of) {
  for (std::size_t i = 0; i < of.values.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(of.d[i]) != kPoison)
      fail("an accumulator was written while a wgmma was in flight", current->wait.where);
    of.d[i] = of.values[i];
  }
}

}  // namespace

std::uint32_t to_tf32(std::uint32_t bits) {
  if ((bits & 0x7f800000u) == 0x7f800000u) return (bits & 0x7fffffu) ? bits | 0x400000u : bits;
  return (bits + 0xfffu + (bits >> 13 & 1)) & ~0x1fffu;
}

void Warpgroup::step() {
  WgmmaRecord& record = records.front();
  const WgmmaShape& shape = record.shape;
  const int n = shape.n, depth = shape.type == MmaType::tf32 ? 8 : 16;
  using Four [[gnu::vector_size(32)]] = double;
  alignas(32) static double a[16 * 64], b[16 * 256];
  static Four c[64][256 / 4];
  if (record.has_registers)
    read_registers(record, a);
  else
    read_operand(*block, record.desc_a, shape.type, shape.k_major_a, 64, a, record.where);
  read_operand(*block, record.desc_b, shape.type, shape.k_major_b, n, b, record.where);
  for (int row = 0; row < 64; row += 4)
    for (int column = 0; column < n; column += 8) {
      Four sum[4][2] = {};
      for (int k = 0; k < depth; ++k) {
        const auto* const y = reinterpret_cast<const Four*>(b + k * n + column);
#pragma GCC unroll 4
        for (int r = 0; r < 4; ++r) {
          const double x = a[k * 64 + row + r];
          sum[r][0] += x * y[0], sum[r][1] += x * y[1];
        }
      }
      for (int r = 0; r < 4; ++r)
        for (int i = 0; i < 2; ++i) c[row + r][column / 4 + i] = sum[r][i];
    }
  for (int t = 0; t < 128; ++t) {  // exact products, summed in double, rounded once to fp32
    float* d = record.d[t]->values.data();
    const int row = t / 32 * 16 + t % 32 / 4, column = t % 4 * 2;
    for (int i = 0; i < n; i += 8)
      for (int h = 0; h < 2; ++h)
        for (int j = 0; j < 2; ++j, ++d) {
          const double sum = reinterpret_cast<const double*>(c[row + 8 * h])[i + column + j];
          *d = static_cast<float>(record.accumulate ? sum + static_cast<double>(*d) : sum);
        }
  }
  records.pop_front();
  ++done;
  wake_all(waiters);
}

void wgmma(const WgmmaShape& shape, float* d, const std::uint32_t* a, std::uint64_t desc_a, std::uint64_t desc_b, bool accumulate,
           Where where) {
  Fiber& thread = *current;
  if (!thread.warpgroup) fail("a wgmma outside of a whole warpgroup", where);
  if (!thread.wgmma_fenced) fail("a wgmma without wgmma.fence before it", where);
  Warpgroup& group = *thread.warpgroup;
  const std::uint64_t index = thread.wgmma_issued++ - group.done;
  if (index >= group.records.size()) {
    group.records.emplace_back();
    WgmmaRecord& fresh = group.records.back();
    fresh.shape = shape, fresh.desc_a = desc_a, fresh.desc_b = desc_b, fresh.accumulate = accumulate;
    fresh.has_registers = a != nullptr, fresh.arrived = 0, fresh.where = where;
  }
  WgmmaRecord& record = group.records[index];
  if (record.shape.n != shape.n || record.shape.type != shape.type || record.desc_b != desc_b || record.desc_a != desc_a ||
      record.accumulate != accumulate || record.has_registers != (a != nullptr))
    fail("threads of a warpgroup differ in a wgmma or its operands (the other: " + describe(record.where) + ")", where);
  const auto slot = thread.index % 128, count = shape.n / 2;
  InFlight* mine = nullptr;
  for (InFlight& other : thread.in_flight) {
    if (other.d == d && other.values.size() == count)
      mine = &other;
    else if (d < other.d + other.values.size() && other.d < d + count)
      fail("a wgmma's accumulators overlap those of another one in flight", where);
  }
  if (!mine) {
    thread.in_flight.push_back({d, std::vector<float>(d, d + count), 0});
    mine = &thread.in_flight.back();
    for (std::size_t i = 0; i < count; ++i) std::memcpy(d + i, &kPoison, 4);
  }
  mine->last = thread.wgmma_issued;
  record.d[slot] = mine;
  record.a[slot] = a;
  if (a) std::memcpy(record.a_values[slot].data(), a, 16);
  if (++record.arrived == 128 && index == 0) stream_changed(group);
}

void wgmma_wait(int pending, Where where) {
  Fiber& thread = *current;
  if (!thread.warpgroup) fail("a wgmma wait outside of a whole warpgroup", where);
  Warpgroup& group = *thread.warpgroup;
  maybe_yield();
  std::uint64_t& until = thread.wgmma_waited;
  while (thread.wgmma_groups.size() > pending) {
    until = thread.wgmma_groups.front();
    thread.wgmma_groups.pop_front();
  }
  while (group.done < until) {
    group.waiters.push_back(current);
    block("wgmma.wait: other warps of the warpgroup have not issued", 0, 0, where);
  }
  thread.wait.where = where;
  thread.in_flight.remove_if([&](InFlight& of) {
    if (of.last > until) return false;
    deliver(of);
    return true;
  });
}

}  // namespace emulation

namespace xgemm::ptx {

void wgmma_fence(emulation::Where) { emulation::current->wgmma_fenced = true; }
void wgmma_commit(emulation::Where) {
  emulation::Fiber& thread = *emulation::current;
  thread.wgmma_groups.push_back(thread.wgmma_committed = thread.wgmma_issued);
  emulation::maybe_yield();
}

}  // namespace xgemm::ptx
