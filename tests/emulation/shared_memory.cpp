// Shared memory: its offsets in a CTA's window, addresses, limits; and the checks at the end of a CTA.
#include <algorithm>

#include "device/ptx/mbarrier.cuh"
#include "state.h"

namespace emulation {

void* dynamic_shared_memory(std::size_t alignment) {
  Block& block = *current->block;
  if (block.dynamic_begin == 0) {
    const auto unit = static_cast<std::uint32_t>(alignment);
    block.dynamic_begin = (block.first_dynamic + unit - 1) / unit * unit;
    block.dynamic_end += block.dynamic_begin;
  }
  return block.window + block.dynamic_begin;
}

void* static_shared_memory(std::uint64_t key, std::size_t bytes, std::size_t alignment) {
  Block& block = *current->block;
  const auto [found, is_new] = block.statics.try_emplace(key, 0);
  if (is_new) {
    const auto unit = static_cast<std::uint32_t>(std::max<std::size_t>(alignment, 4));
    found->second = (block.static_end + unit - 1) / unit * unit;
    block.static_end = found->second + static_cast<std::uint32_t>(bytes);
    if (block.static_end > Block::kStatic + 48 * 1024) fail("more than 48 KiB of static shared memory");
  }
  return block.window + found->second;
}

std::uint32_t shared_address_of(const void* pointer, Where where) {
  const auto* const at = static_cast<const unsigned char*>(pointer);
  for (const auto& block : current->block->cluster->blocks)
    if (at >= block->window && at < block->window + Block::kWindow)
      return block->rank << 24 | static_cast<std::uint32_t>(at - block->window);
  fail("the shared address of a pointer that is none to shared memory", where);
}

Block& block_at(std::uint32_t address) {
  Cluster& cluster = *current->block->cluster;
  if (address >> 24 >= cluster.blocks.size()) fail(text("a shared address of CTA ", address >> 24, " of a smaller cluster"));
  return *cluster.blocks[address >> 24];
}

void* pointer_at(Block& home, std::uint32_t address, std::size_t bytes, std::size_t alignment, Where where) {
  const std::uint32_t place = address & 0xffffff;
  const std::size_t end = place + bytes;
  const bool dynamic = home.dynamic_begin != 0 && place >= home.dynamic_begin && end <= home.dynamic_end;
  std::uint32_t static_end = 0;  // this CTA may not have reached the declaration yet
  for (const auto& block : home.cluster->blocks) static_end = std::max(static_end, block->static_end);
  if (!dynamic && !(place >= Block::kStatic && end <= static_end))
    fail(text("shared addresses ", place, " to ", end, " are out of bounds (dynamic shared memory: ", home.dynamic_begin, " to ",
              home.dynamic_end, ")"),
         where);
  if (place % alignment) fail(text("shared address ", place, " is not aligned to ", alignment, " bytes"), where);
  return home.window + place;
}

void* shared_pointer(std::uint32_t address, std::size_t bytes, std::size_t alignment, Where where) {
  return pointer_at(block_at(address), address, bytes, alignment, where);
}

void registers_changed(int registers) {
  ++current->register_changes;
  current->registers = registers;
}

void check_end(Block& block) {
  const std::string name = text(" (CTA ", block.index.x, ")");
  for (const auto& fiber : block.fibers) {
    if (fiber->copies && fiber->copies->ready())
      fail("a cp.async is under way when its CTA has ended: " + describe(fiber->copies->copies.front().where) + name);
    if (fiber->stores) {
      if (!fiber->stores->stores.empty()) fail("a bulk store still reads shared memory when its CTA has ended" + name);
      while (fiber->stores->ready()) fiber->stores->step();
    }
    if (!fiber->in_flight.empty() || fiber->wgmma_committed != fiber->wgmma_issued)
      fail("a wgmma has not been waited for when its CTA has ended" + name);
  }
  if (block.cluster->loads != 0) fail("a copy to shared memory is under way when its cluster has ended" + name);
  for (const auto& [place, barrier] : block.mbarriers)
    if (barrier.bytes != 0 && barrier.used)
      fail(text("the mbarrier of ", describe(barrier.where), " has ", barrier.bytes, " bytes outstanding at the end", name));
  for (int id = 0; id < 16; ++id)
    if (block.named[id].arrived.any()) fail(text("threads have arrived at barrier ", id, " that never completed", name));
  if (block.dynamic_begin != 0) {
    const unsigned char* const w = block.window;
    const auto poisoned = [](const unsigned char* from, const unsigned char* to) {
      return std::all_of(from, to, [](unsigned char c) { return c == 0xff; });
    };
    if (!poisoned(w, w + block.dynamic_begin)) fail("something was written in front of dynamic shared memory" + name);
    if (!poisoned(w + block.dynamic_end, w + block.dynamic_end + Block::kGuard))
      fail("something was written behind dynamic shared memory" + name);
  }
  int pool = 0;
  for (std::size_t t = 0; t + 128 <= block.fibers.size(); t += 128) {
    for (std::size_t i = 1; i < 128; ++i)
      if (block.fibers[t + i]->register_changes != block.fibers[t]->register_changes ||
          block.fibers[t + i]->registers != block.fibers[t]->registers)
        fail(text("setmaxnreg by some warps only of warpgroup ", t / 128, name));
    pool += block.fibers[t]->registers * 128;
  }
  if (pool > 65536) fail(text("setmaxnreg asks for ", pool, " registers", name));
}

}  // namespace emulation

std::uint32_t xgemm::ptx::shared_address(const void* pointer, Where where) {
  return emulation::shared_address_of(pointer, where);
}
