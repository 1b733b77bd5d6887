// Plain reads of shared memory that TMA overwrites: the reading thread needs fence.proxy.async in between. Reads by ldmatrix
// are always seen, loads in programs that build.py compiles with `reads`: g++ then calls the functions at the end for each
// access (those of its thread sanitizer, which is not linked).
#include "device/ptx/bulk_copy.cuh"
#include "state.h"

namespace emulation {

void plain_read(const void* from, std::size_t bytes) {
  if (current == nullptr) return;
  Block& block = *current->block;
  const auto place = static_cast<const unsigned char*>(from) - block.window;
  if (place < 0 || place >= static_cast<std::ptrdiff_t>(kWindowBytes)) return;
  Fiber& thread = *current;
  if (!thread.has_read) thread.has_read = std::make_unique<std::bitset<kWindowBytes / kPieceBytes>>();
  if (block.unfenced.empty()) block.unfenced.resize(kWindowBytes / kPieceBytes);
  const std::size_t first = place, last = first + bytes - 1;
  for (std::size_t piece = first / kPieceBytes; piece <= last / kPieceBytes; ++piece) {
    if (thread.has_read->test(piece)) continue;
    thread.has_read->set(piece);
    thread.unfenced.push_back(static_cast<std::uint32_t>(piece));
    ++block.unfenced[piece];
  }
}

void check_unfenced(Block& block, std::uint32_t place, std::size_t bytes, Where where) {
  if (block.unfenced.empty() || !block.proxy_fences) return;
  for (std::size_t piece = place / kPieceBytes; piece <= (place + bytes - 1) / kPieceBytes; ++piece)
    if (block.unfenced[piece] != 0)
      fail(text("a copy overwrites shared address ", piece * kPieceBytes, ", which ", block.unfenced[piece],
                " threads have read without fence.proxy.async after it"),
           where);
}

}  // namespace emulation

void xgemm::ptx::fence_async_shared() {
  emulation::Fiber& thread = *emulation::current;
  for (const std::uint32_t piece : thread.unfenced) --thread.block->unfenced[piece], thread.has_read->reset(piece);
  thread.unfenced.clear();
  emulation::maybe_yield();
}

#define EMULATION_ACCESS(bytes)                                                         \
  void __tsan_read##bytes(void* from) { emulation::plain_read(from, bytes); }           \
  void __tsan_unaligned_read##bytes(void* from) { emulation::plain_read(from, bytes); } \
  void __tsan_write##bytes(void*) {}                                                    \
  void __tsan_unaligned_write##bytes(void*) {}
extern "C" {
EMULATION_ACCESS(1)
EMULATION_ACCESS(2)
EMULATION_ACCESS(4)
EMULATION_ACCESS(8)
EMULATION_ACCESS(16)
void __tsan_read_range(void* from, unsigned long bytes) { emulation::plain_read(from, bytes); }
void __tsan_write_range(void*, unsigned long) {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_init() {}
}
