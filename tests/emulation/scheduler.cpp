// Fibers, the order in which they run, the asynchronous streams between them, and launches.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "state.h"

// void switch_stack(void** save, void* to): callee-saved registers on the old stack, then those of the new one.
asm(R"(
.text
.globl emulation_switch_stack
.type emulation_switch_stack, @function
emulation_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulation_switch_stack, .-emulation_switch_stack
)");
extern "C" void emulation_switch_stack(void** save, void* to);

namespace emulation {

const ThreadView* self = nullptr;
Fiber* current = nullptr;

namespace {

constexpr std::size_t kStackBytes = 256 * 1024, kPage = 4096;
constexpr long long kMostSpins = 4'000'000;

struct Machine {
  const std::function<void()>* body;
  std::vector<std::unique_ptr<Cluster>> clusters;
  std::vector<Fiber*> runnable;
  std::vector<Stream*> active;
  std::uint64_t random = 1;
  std::uint32_t at_once[Stream::kKinds], later[Stream::kKinds], any_later, yields;  // probabilities times 2^32
  void* main_sp = nullptr;
  std::string error;
  Cluster* ended = nullptr;
  std::uint32_t first_dynamic = 0;
  long long ticks = 0, spins = 0;
  bool proxy_fences = true;
  bool in_stream = false;  ///< an asynchronous step runs, not the running thread
};
Machine* machine = nullptr;
std::vector<unsigned char*> free_stacks, free_windows;

bool chance(std::uint32_t probability) { return probability != 0 && static_cast<std::uint32_t>(random_bits()) < probability; }

unsigned char* new_stack() {
  if (!free_stacks.empty()) {
    unsigned char* const stack = free_stacks.back();
    free_stacks.pop_back();
    return stack;
  }
  void* const stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack == MAP_FAILED) throw Error("no memory for a fiber's stack");
  mprotect(stack, kPage, PROT_NONE);  // an overflow ends the program
  return static_cast<unsigned char*>(stack);
}

unsigned char* new_window() {
  if (!free_windows.empty()) {
    unsigned char* const window = free_windows.back();
    free_windows.pop_back();
    return window;
  }
  return static_cast<unsigned char*>(std::aligned_alloc(4096, Block::kWindow));
}

void run_stream(Stream& stream) {
  machine->in_stream = true;
  if (stream.ready()) stream.step();
  machine->in_stream = false;
  if (stream.ready()) return;
  machine->active[stream.place] = machine->active.back();
  machine->active[stream.place]->place = stream.place;
  machine->active.pop_back();
  stream.place = -1;
  if (stream.owned) delete &stream;
}

std::string all_waits() {
  std::string all;
  int lines = 0;
  for (const auto& cluster : machine->clusters)
    for (const auto& block : cluster->blocks)
      for (const Warp& warp : block->warps) {
        std::vector<std::pair<std::string, int>> reasons;  // and how many lanes
        for (const Fiber* fiber : warp.lanes) {
          if (!fiber || fiber->done) continue;
          const std::string reason = describe_barrier(*fiber) + " at " + describe(fiber->wait.where);
          const auto same = std::find_if(reasons.begin(), reasons.end(), [&](const auto& r) { return r.first == reason; });
          same == reasons.end() ? reasons.emplace_back(reason, 1) : * same = {reason, same->second + 1};
        }
        for (const auto& [reason, lanes] : reasons)
          if (++lines <= 64)
            all += text("\n  CTA ", block->index.x, " warp ", &warp - block->warps.data(), " (", lanes, " lanes): ", reason);
      }
  return all;
}

/// The next thread to run; does asynchronous steps on the way. Null: the main program (an error).
Fiber* next_fiber() {
  Machine& m = *machine;
  while (true) {
    ++m.ticks;
    if (!m.active.empty()) {
      const bool must = m.runnable.empty();
      if (must || chance(m.any_later)) {
        Stream& stream = *m.active[random_bits() % m.active.size()];
        if (must || chance(m.later[stream.kind])) {
          run_stream(stream);
          if (must) m.spins = 0;
          if (!m.error.empty()) return nullptr;
          continue;
        }
      }
    }
    if (!m.runnable.empty()) {
      const std::size_t at = random_bits() % m.runnable.size();
      Fiber* const fiber = m.runnable[at];
      m.runnable[at] = m.runnable.back();
      m.runnable.pop_back();
      return fiber;
    }
    m.error = "deadlock" + all_waits();
    return nullptr;
  }
}

void switch_from(void** save, Fiber* to) {
  if (to == current && to) return;
  current = to, self = to;
  emulation_switch_stack(save, to ? to->sp : machine->main_sp);
}

void give_way() {
  Fiber* const mine = current;
  switch_from(&mine->sp, next_fiber());
}

void fiber_main() {
  try {
    (*machine->body)();
  } catch (const std::exception& e) {
    fail(text("an exception left a kernel: ", e.what()));
  }
  Fiber& fiber = *current;
  Block& block = *fiber.block;
  fiber.done = true;
  block.warps[fiber.warp].live &= ~(1u << fiber.lane);
  --block.live;
  recheck_collectives(block, fiber.warp);
  recheck_barriers(block);
  recheck_cluster(*block.cluster);
  void* nowhere;
  if (--block.cluster->live == 0) {
    machine->ended = block.cluster;
    switch_from(&nowhere, nullptr);
  }
  switch_from(&nowhere, next_fiber());
  __builtin_unreachable();
}

void start_cluster(unsigned first, dim3 grid, dim3 threads, std::size_t shared_bytes, unsigned size) {
  Machine& m = *machine;
  auto cluster = std::make_unique<Cluster>();
  const int count = static_cast<int>(threads.x * threads.y * threads.z);
  for (unsigned rank = 0; rank < size; ++rank) {
    auto block = std::make_unique<Block>();
    const unsigned linear = first + rank;
    block->index = {linear % grid.x, linear / grid.x % grid.y, linear / (grid.x * grid.y)};
    block->rank = rank;
    block->cluster = cluster.get();
    block->window = new_window();
    std::memset(block->window, 0xff, Block::kWindow);
    block->first_dynamic = m.first_dynamic;
    block->proxy_fences = m.proxy_fences;
    block->dynamic_end = static_cast<std::uint32_t>(shared_bytes);  // its size, until it has an address
    block->live = count;
    block->warps.resize((count + 31) / 32);
    for (int w = 0; w < count / 128; ++w) {
      block->warpgroups.push_back(std::make_unique<Warpgroup>(block.get()));
      block->warpgroups.back()->home = cluster.get();
    }
    for (int t = 0; t < count; ++t) {
      auto fiber = std::make_unique<Fiber>();
      const auto u = static_cast<unsigned>(t);
      fiber->thread = {u % threads.x, u / threads.x % threads.y, u / (threads.x * threads.y)};
      fiber->ThreadView::block = block->index;
      fiber->block_dim = threads, fiber->grid_dim = grid;
      fiber->block = block.get();
      fiber->index = t, fiber->warp = t / 32, fiber->lane = t % 32;
      fiber->warpgroup = t / 128 < count / 128 ? block->warpgroups[t / 128].get() : nullptr;
      fiber->stack = new_stack();
      void** top = reinterpret_cast<void**>(fiber->stack + kStackBytes) - 8;
      top[7] = nullptr;
      top[6] = reinterpret_cast<void*>(&fiber_main);  // at its start, the stack pointer is 8 above a multiple of 16
      fiber->sp = top;
      Warp& warp = block->warps[t / 32];
      warp.lanes[t % 32] = fiber.get();
      warp.live |= 1u << t % 32;
      m.runnable.push_back(fiber.get());
      block->fibers.push_back(std::move(fiber));
    }
    cluster->live += count;
    cluster->blocks.push_back(std::move(block));
  }
  m.clusters.push_back(std::move(cluster));
}

void release(Cluster& cluster) {
  for (const auto& block : cluster.blocks) {
    for (const auto& fiber : block->fibers) free_stacks.push_back(fiber->stack);
    free_windows.push_back(block->window);
  }
}

/// Each seed has its own delays: at once, some time later, or only when nothing else can run.
void draw_delays(Machine& m, std::uint64_t seed) {
  m.random = (seed + 1) * 0x9e3779b97f4a7c15ull;
  for (int i = 0; i < 8; ++i) random_bits();
  constexpr std::uint32_t kAtOnce[4] = {0, 0xffffffffu, 0x40000000u, 0}, kLater[4] = {0, 0xffffffffu, 0x40000000u, 0xffffffffu};
  for (int kind = 0; kind < Stream::kKinds; ++kind) {
    const auto mode = seed < 2 ? seed : random_bits() % 4;  // the first two seeds: all late, all at once
    m.at_once[kind] = kAtOnce[mode];
    m.later[kind] = kLater[mode];
  }
  m.any_later = random_bits() % 2 ? 0x08000000u : 0x00400000u;
  // Dynamic shared memory starts at any multiple of 16, or of the alignment that the kernel declares; at the same in all CTAs.
  m.first_dynamic = Block::kFirst + Block::kGuard + static_cast<unsigned>(random_bits() % 64 * 16);
  constexpr std::uint32_t kYields[3] = {0, 0x10000000u, 0x80000000u};
  m.yields = kYields[random_bits() % 3];
}

}  // namespace

Options& launch_options() {
  static Options options;
  return options;
}

std::uint64_t random_bits() {
  std::uint64_t& x = machine->random;
  x ^= x >> 12, x ^= x << 25, x ^= x >> 27;
  return (x * 0x2545f4914f6cdd1dull) >> 32;
}

long long clock_ticks() { return machine->ticks; }

void fail(const std::string& message) {
  machine->error = message;
  if (!current) throw Error(message);
  if (message.find("CTA ") == std::string::npos && !machine->in_stream) machine->error += " (" + name_of(*current) + ")";
  void* nowhere;
  switch_from(&nowhere, nullptr);
  __builtin_unreachable();
}
void fail(const std::string& message, Where where) { fail(message + " at " + describe(where)); }

std::string describe(const Where& where) {
  const std::string file = where.file_name();
  const std::size_t slash = file.rfind('/');
  return text(slash == std::string::npos ? file : file.substr(slash + 1), ":", where.line());
}
std::string name_of(const Fiber& fiber) { return text("CTA ", fiber.block->index.x, " thread ", fiber.index); }

void block(const char* what, std::uint32_t object, std::uint32_t value, Where where) {
  current->wait = {what, object, value, where};
  machine->spins = 0;
  give_way();
}
void wake(Fiber* fiber) { machine->runnable.push_back(fiber); }
void wake_all(std::vector<Fiber*>& fibers) {
  for (Fiber* const fiber : fibers) wake(fiber);
  fibers.clear();
}

void yield(bool spins) {
  if (!spins) machine->spins = 0;
  if (spins && ++machine->spins > kMostSpins) fail("livelock: threads only poll memory" + all_waits());
  current->wait = {"polls", 0, 0, Where::current()};
  machine->runnable.push_back(current);
  give_way();
}
void maybe_yield() {
  if (chance(machine->yields)) yield();
}

void stream_changed(Stream& stream) {
  if (!stream.ready()) return;
  if (stream.place < 0) {
    stream.place = static_cast<int>(machine->active.size());
    machine->active.push_back(&stream);
  }
  if (chance(machine->at_once[stream.kind])) run_stream(stream);
}

void run(const std::function<void()>& body, dim3 grid, dim3 block, std::size_t shared_bytes, const Options& options) {
  if (machine) throw Error("a launch inside of a launch");
  const unsigned ctas = grid.x * grid.y * grid.z, size = std::max(options.cluster, 1u);
  if (grid.x % size) throw Error("the grid is no multiple of the cluster");
  if (block.x * block.y * block.z > 1024 || block.x * block.y * block.z == 0) throw Error("a CTA of 0 or more than 1024 threads");
  if (shared_bytes > 227 * 1024) throw Error("more than 227 KiB of shared memory");
  Machine m;
  machine = &m;
  m.body = &body;
  m.proxy_fences = options.proxy_fences;
  draw_delays(m, options.seed);
  const unsigned at_once = options.all_ctas ? ctas : std::max(options.concurrent_ctas / size * size, size);
  unsigned next = 0;
  const auto fill = [&] {
    for (; next < ctas && m.clusters.size() * size < at_once; next += size) start_cluster(next, grid, block, shared_bytes, size);
  };
  try {
    for (fill(); !m.clusters.empty(); fill()) {
      m.ended = nullptr;
      Fiber* const first = next_fiber();
      if (first) switch_from(&m.main_sp, first);
      if (!m.error.empty()) throw Error(m.error);
      for (const auto& cta : m.ended->blocks) check_end(*cta);
      release(*m.ended);
      std::erase_if(m.active, [&](Stream* s) { return s->home == m.ended; });
      for (std::size_t i = 0; i < m.active.size(); ++i) m.active[i]->place = static_cast<int>(i);
      std::erase_if(m.clusters, [&](const auto& c) { return c.get() == m.ended; });
    }
  } catch (...) {
    for (const auto& cluster : m.clusters) release(*cluster);
    for (Stream* const stream : m.active)
      if (stream->owned) delete stream;
    machine = nullptr, current = nullptr, self = nullptr;
    throw;
  }
  machine = nullptr, current = nullptr, self = nullptr;
}

}  // namespace emulation
