// __syncthreads, named barriers, cluster barriers and mbarriers.
#include <cstring>

#include "device/ptx/cluster.cuh"
#include "device/ptx/warpgroup.cuh"
#include "state.h"

namespace emulation {
namespace {

/// Threads that a barrier waits for; 0 (__syncthreads): all of the CTA that have not exited.
bool complete(const Block& block, const NamedBarrier& barrier) {
  const std::size_t arrived = barrier.arrived.count();
  if (arrived == 0) return false;
  if (barrier.threads != 0) return arrived >= barrier.threads;
  for (const auto& fiber : block.fibers)
    if (!fiber->done && !barrier.arrived[fiber->index]) return false;
  return true;
}

void finish(Block& block, int id) {
  NamedBarrier& barrier = block.named[id];
  for (std::size_t w = 0; w < block.warps.size(); ++w) {  // bar.sync is aligned: whole warps
    unsigned lanes = 0;
    for (std::size_t l = 0; l < 32; ++l)
      if (32 * w + l < 1024 && barrier.arrived[32 * w + l]) lanes |= 1u << l;
    if (lanes && (block.warps[w].live & ~lanes))
      fail(text("barrier ", id, " is complete, but only some lanes of warp ", w, " of CTA ", block.index.x, " have arrived"),
           barrier.where);
  }
  barrier.arrived.reset();
  barrier.result = barrier.count_nonzero;
  barrier.count_nonzero = 0;
  wake_all(barrier.waiters);
}

int meet(int id, int threads, bool arrive_only, int value, Where where) {
  Block& block = *current->block;
  if (id < 0 || id > 15) fail(text("there is no named barrier ", id), where);
  if (threads % 32 || threads > static_cast<int>(block.fibers.size()))
    fail(text("barrier ", id, " of ", threads, " threads"), where);
  NamedBarrier& barrier = block.named[id];
  if (barrier.arrived.none())
    barrier.threads = threads, barrier.where = where;
  else if (barrier.threads != threads)
    fail(text("barrier ", id, " of ", threads, " threads, where those before named ", barrier.threads, " (",
              describe(barrier.where), ")"),
         where);
  if (barrier.arrived[current->index]) fail(text("a thread arrives twice at barrier ", id, " in one phase"), where);
  barrier.arrived[current->index] = true;
  barrier.count_nonzero += value != 0;
  if (complete(block, barrier)) {
    finish(block, id);
    maybe_yield();
  } else if (!arrive_only) {
    barrier.waiters.push_back(current);
    emulation::block("barrier", static_cast<std::uint32_t>(id), static_cast<std::uint32_t>(threads), where);
  }
  return barrier.result;  // the next phase needs this thread
}

std::uint64_t cookie_of(const Block& block, std::uint32_t place, std::uint32_t phase) {
  return (reinterpret_cast<std::uintptr_t>(&block) ^ 0x5bd1e9955bd1e995ull) * (place + 1) + phase;
}

Mbarrier& mbarrier_at(Block& block, std::uint32_t address, Where where) {
  const std::uint32_t place = address & 0xffffff;
  const auto found = block.mbarriers.find(place);
  if (found == block.mbarriers.end()) fail(text("an mbarrier that is not initialised, at shared address ", place), where);
  std::uint64_t cookie;
  std::memcpy(&cookie, block.window + place, 8);
  if (cookie != found->second.cookie)
    fail(text("an mbarrier that something else has overwritten, at shared address ", place), where);
  return found->second;
}

void maybe_complete(Block& block, std::uint32_t place, Mbarrier& barrier) {
  if (barrier.pending != 0 || barrier.bytes != 0) return;
  barrier.pending = barrier.count;
  ++barrier.phase;
  barrier.cookie = cookie_of(block, place, barrier.phase);
  std::memcpy(block.window + place, &barrier.cookie, 8);
  wake_all(barrier.waiters);
}

}  // namespace

std::uint32_t mbarrier_address(const void* barrier, Where where) {
  const std::uint32_t address = shared_address_of(barrier, where);
  shared_pointer(address, 8, 8, where);
  return address;
}

void arrive_between_yields(std::uint32_t address, std::int64_t expected_bytes, Where where) {
  shared_pointer(address, 8, 8, where);
  maybe_yield();
  arrive(block_at(address), address, expected_bytes, where);
  maybe_yield();
}

void recheck_barriers(Block& block) {
  for (int id = 0; id < 16; ++id) {
    const NamedBarrier& barrier = block.named[id];
    if (barrier.arrived.any() && barrier.threads == 0 && complete(block, barrier)) finish(block, id);
  }
}

void recheck_cluster(Cluster& cluster) {
  if (cluster.arrived == 0) return;
  for (const auto& block : cluster.blocks)
    for (const auto& fiber : block->fibers)
      if (!fiber->done && !(fiber->cluster_arrived && fiber->cluster_phase == cluster.phase)) return;
  ++cluster.phase;
  cluster.arrived = 0;
  wake_all(cluster.waiters);
}

void arrive(Block& block, std::uint32_t address, std::int64_t expected, Where where) {
  Mbarrier& barrier = mbarrier_at(block, address, where);
  if (barrier.pending == 0)
    fail(text("more arrivals than the ", barrier.count, " of the mbarrier of ", describe(barrier.where)), where);
  barrier.bytes += expected;
  if (barrier.bytes >= 1 << 20) fail("an mbarrier expects 2^20 bytes or more", where);
  --barrier.pending;
  maybe_complete(block, address & 0xffffff, barrier);
}

void complete_bytes(Block& block, std::uint32_t address, std::int64_t bytes, Where where) {
  Mbarrier& barrier = mbarrier_at(block, address, where);
  barrier.bytes -= bytes;
  barrier.used = true;
  if (barrier.pending == 0 && barrier.bytes < 0)
    fail("more bytes have come than the mbarrier of " + describe(barrier.where) + " expected", where);
  maybe_complete(block, address & 0xffffff, barrier);
}

std::string describe_barrier(const Fiber& fiber) {
  const Wait& wait = fiber.wait;
  if (!wait.what) return "has not begun";
  const std::string_view what = wait.what;
  if (what == "mbarrier") {
    const Block& home = *fiber.block->cluster->blocks[wait.object >> 24];
    const Mbarrier& barrier = home.mbarriers.at(wait.object & 0xffffff);
    return text("waits for parity ", wait.value, " of the mbarrier of ", describe(barrier.where), ", shared address ",
                wait.object & 0xffffff, ", in phase ", barrier.phase, ": ", barrier.pending, " of ", barrier.count,
                " arrivals and ", barrier.bytes, " bytes are missing");
  }
  if (what == "barrier") {
    const NamedBarrier& barrier = fiber.block->named[wait.object];
    return text("waits at barrier ", wait.object, ", where ", barrier.arrived.count(), " of ",
                barrier.threads ? text(barrier.threads) : text("all"), " threads are");
  }
  return text("waits in ", what);
}

}  // namespace emulation

void __syncthreads(emulation::Where where) { emulation::meet(0, 0, false, 0, where); }
int __syncthreads_or(int value, emulation::Where where) { return emulation::meet(0, 0, false, value, where) != 0; }

namespace xgemm::ptx {

using namespace emulation;

void named_barrier_sync(int id, int threads, Where where) { named_barrier_or(id, threads, false, where); }
void named_barrier_arrive(int id, int threads, Where where) {
  if (threads == 0) fail("a named barrier of 0 threads", where);
  meet(id, threads, true, 0, where);
}
bool named_barrier_or(int id, int threads, bool condition, Where where) {
  if (threads == 0) fail("a named barrier of 0 threads", where);
  return meet(id, threads, false, condition, where) != 0;
}

std::uint32_t cluster_rank() { return current->block->rank; }
std::uint32_t cluster_index() { return current->block->index.x / static_cast<unsigned>(current->block->cluster->blocks.size()); }
void cluster_arrive_relaxed(Where where) {
  Cluster& cluster = *current->block->cluster;
  if (current->cluster_arrived) fail("a thread arrives twice at the cluster's barrier", where);
  current->cluster_arrived = true;
  current->cluster_phase = cluster.phase;
  ++cluster.arrived;
  recheck_cluster(cluster);
  maybe_yield();
}

void cluster_wait(Where where) {
  Cluster& cluster = *current->block->cluster;
  if (!current->cluster_arrived) fail("a thread waits for the cluster's barrier without having arrived", where);
  while (cluster.phase == current->cluster_phase) {
    cluster.waiters.push_back(current);
    block("cluster barrier", 0, 0, where);
  }
  current->cluster_arrived = false;
}

void barrier_init(Barrier* barrier, std::uint32_t count, Where where) {
  const std::uint32_t address = mbarrier_address(barrier, where);
  if (count == 0 || count >= 1u << 20) fail(text("an mbarrier of ", count, " arrivals"), where);
  Block& block = block_at(address);
  const std::uint32_t place = address & 0xffffff;
  const auto found = block.mbarriers.find(place);
  if (found != block.mbarriers.end() && (!found->second.waiters.empty() || found->second.bytes != 0))
    fail("an mbarrier is initialised again while it is in use", where);
  Mbarrier& fresh = block.mbarriers[place];
  fresh = {count, count, 0, 0, cookie_of(block, place, 0), where, {}, false};
  std::memcpy(block.window + place, &fresh.cookie, 8);
}

std::uint32_t remote_address(const void* mine, std::uint32_t rank, Where where) {
  return (shared_address(mine, where) & 0xffffffu) | rank << 24;
}
void barrier_arrive(Barrier* barrier, Where where) { barrier_arrive_expect(barrier, 0, where); }
void barrier_arrive(const Barrier* mine, std::uint32_t rank, Where where) {
  barrier_arrive_if(remote_address(mine, rank, where), true, where);
}
void barrier_arrive_expect(Barrier* barrier, std::uint32_t bytes, Where where) {
  arrive_between_yields(shared_address(barrier, where), bytes, where);
}
void barrier_arrive_if(std::uint32_t address, bool really, Where where) {
  if (really) arrive_between_yields(address, 0, where);
}

bool barrier_test(const Barrier* at, std::uint32_t parity, Where where) {
  const std::uint32_t address = mbarrier_address(at, where);
  yield(true);
  Mbarrier& barrier = mbarrier_at(block_at(address), address, where);
  barrier.used = true;
  return (barrier.phase & 1) != parity;
}

void barrier_wait(Barrier* at, std::uint32_t parity, Where where) {
  const std::uint32_t address = mbarrier_address(at, where);
  if (parity > 1) fail(text("a parity of ", parity), where);
  Block& home = block_at(address);
  maybe_yield();
  Mbarrier& barrier = mbarrier_at(home, address, where);
  barrier.used = true;
  if ((barrier.phase & 1) != parity) return;
  const std::uint32_t phase = barrier.phase;
  barrier.waiters.push_back(current);
  block("mbarrier", address, parity, where);
  if (mbarrier_at(home, address, where).phase != phase + 1)
    fail("the mbarrier of " + describe(barrier.where) + " has completed another phase before a thread saw the one it waited for",
         where);
}

}  // namespace xgemm::ptx
