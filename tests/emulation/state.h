// The emulator's own structures; tests and emulated headers use emulation.h only.
#pragma once
#include <array>
#include <bitset>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "emulation.h"

namespace emulation {

struct Block;
struct Cluster;
struct Warpgroup;
struct Fiber;

/// Asynchronous operations that a thread has started: steps are done in order, at random times.
struct Stream {
  enum Kind { kLoad, kCopy, kStore, kMma, kKinds };
  explicit Stream(Kind kind) : kind(kind) {}
  virtual ~Stream() = default;
  virtual void step() = 0;         ///< does the next step
  virtual bool ready() const = 0;  ///< can a step be done?
  const Kind kind;
  std::vector<Fiber*> waiters;  ///< woken after each step
  int place = -1;               ///< index among the active streams
  bool owned = false;           ///< by the list of active streams
  Cluster* home = nullptr;
};
/// Call it after an addition to a stream or when it has become ready; may do a step at once.
void stream_changed(Stream& stream);

/// Copies of a thread, which waits for them in groups.
struct GroupedStream : Stream {
  using Stream::Stream;
  Block* block = nullptr;
  std::uint64_t issued = 0, done = 0;
  std::deque<std::uint64_t> groups;  ///< `issued` at each commit
  void issue();
  void commit() { groups.push_back(issued); }
  void one_done();
  /// Waits until at most `pending` groups are not done.
  void wait(int pending, const char* what);
};

/// A thread's cp.async.
struct CopyStream final : GroupedStream {
  struct Copy {
    void* to;
    const void* from;
    int bytes, count;
    std::uint32_t barrier;  ///< not 0: an arrival instead of a copy
    Where where;
  };
  std::deque<Copy> copies;
  CopyStream() : GroupedStream(kCopy) {}
  void step() override;
  bool ready() const override { return !copies.empty(); }
};

/// A thread's bulk stores: each is read from shared memory in one step, when it is done for its group, and written in another.
struct StoreStream final : GroupedStream {
  struct Store {
    std::function<void()> read, write;
  };
  std::deque<Store> stores;     ///< to read from shared memory
  std::deque<Store> unwritten;  ///< to write to global memory
  StoreStream() : GroupedStream(kStore) {}
  void step() override;
  bool ready() const override { return !stores.empty() || !unwritten.empty(); }
};

/// Accumulators that wgmmas in flight use: their values, while the thread's own memory is poisoned.
struct InFlight {
  float* d;
  std::vector<float> values;
  std::uint64_t last;  ///< one past the index of the last wgmma that uses them
};

struct Wait {
  const char* what = nullptr;
  std::uint32_t object = 0, value = 0;
  Where where;
};

/// A CTA's window in the emulator's memory, and the granularity at which reads.cpp tracks it.
constexpr std::uint32_t kWindowBytes = 320 * 1024, kPieceBytes = 16;

struct Fiber : ThreadView {
  void* sp = nullptr;
  unsigned char* stack = nullptr;
  Block* block = nullptr;
  Warpgroup* warpgroup = nullptr;
  int index = 0, warp = 0, lane = 0;
  bool done = false;
  Wait wait;
  int register_changes = 0, registers = 0;
  bool cluster_arrived = false;
  std::uint64_t cluster_phase = 0;
  std::unique_ptr<CopyStream> copies;
  std::unique_ptr<StoreStream> stores;
  // wgmma
  std::uint64_t wgmma_issued = 0, wgmma_committed = 0, wgmma_waited = 0;
  bool wgmma_fenced = false;
  std::deque<std::uint64_t> wgmma_groups;
  std::list<InFlight> in_flight;
  // Pieces of shared memory that the thread has read since its last proxy fence (reads.cpp).
  std::unique_ptr<std::bitset<kWindowBytes / kPieceBytes>> has_read;
  std::vector<std::uint32_t> unfenced;
};

struct Collective {
  unsigned mask, arrived;
  void (*compute)(Arguments32);
  const char* name;
  Where where;
  void* arguments[32];
};
struct Warp {
  std::array<Fiber*, 32> lanes{};
  unsigned live = 0;
  std::vector<Collective> open;
};

struct WgmmaRecord {
  WgmmaShape shape;
  std::uint64_t desc_a, desc_b;
  bool accumulate, has_registers;
  std::array<InFlight*, 128> d;
  std::array<const std::uint32_t*, 128> a;
  std::array<std::array<std::uint32_t, 4>, 128> a_values;
  int arrived;
  Where where;
};
/// A warpgroup's wgmmas in order.
struct Warpgroup final : Stream {
  std::deque<WgmmaRecord> records;
  std::uint64_t done = 0;  ///< index of records.front()
  Block* block;
  explicit Warpgroup(Block* block) : Stream(kMma), block(block) {}
  void step() override;
  bool ready() const override { return !records.empty() && records.front().arrived == 128; }
};

struct NamedBarrier {
  int threads = 0;
  std::bitset<1024> arrived;
  std::vector<Fiber*> waiters;
  int count_nonzero = 0, result = 0;
  Where where;
};

struct Mbarrier {
  std::uint32_t count, pending, phase;
  std::int64_t bytes;  ///< expected and not yet written
  std::uint64_t cookie;
  Where where;
  std::vector<Fiber*> waiters;
  bool used;  ///< a thread has waited or bytes have come
};

struct Block {
  static constexpr std::uint32_t kFirst = 1024, kStatic = 240 * 1024, kWindow = kWindowBytes, kGuard = 1024;
  uint3 index;
  unsigned rank;
  Cluster* cluster;
  unsigned char* window;
  std::uint32_t dynamic_begin = 0, dynamic_end = 0, static_end = kStatic, first_dynamic;
  std::unordered_map<std::uint64_t, std::uint32_t> statics;
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<Warp> warps;
  std::vector<std::unique_ptr<Warpgroup>> warpgroups;
  std::array<NamedBarrier, 16> named;
  std::unordered_map<std::uint32_t, Mbarrier> mbarriers;
  std::vector<std::uint16_t> unfenced;  ///< reads.cpp: threads that have read a piece since their last proxy fence
  bool proxy_fences = true;             ///< are proxy fences checked? (Options)
  int live = 0;
};

struct Cluster {
  std::vector<std::unique_ptr<Block>> blocks;
  int live = 0;
  std::uint64_t phase = 0;
  int arrived = 0;
  std::vector<Fiber*> waiters;
  int loads = 0;  ///< copies to its shared memory in flight
};

extern Fiber* current;

/// The running thread sleeps until wake().
void block(const char* what, std::uint32_t object, std::uint32_t value, Where where);
void wake(Fiber* fiber);
void wake_all(std::vector<Fiber*>& fibers);
std::string describe(const Where& where);
std::string name_of(const Fiber& fiber);

/// The CTA of an address, and the pointer into its window.
Block& block_at(std::uint32_t address);
void* pointer_at(Block& home, std::uint32_t address, std::size_t bytes, std::size_t alignment, Where where);
void complete_bytes(Block& block, std::uint32_t address, std::int64_t bytes, Where where);
void arrive(Block& block, std::uint32_t address, std::int64_t expected, Where where);
/// The shared address of an mbarrier.
std::uint32_t mbarrier_address(const void* barrier, Where where);
std::string describe_barrier(const Fiber& fiber);
/// Fails if a thread has read some of the bytes, which TMA is about to write, without a proxy fence after it.
void check_unfenced(Block& block, std::uint32_t place, std::size_t bytes, Where where);

// Called when a thread has exited: collectives and barriers may then be complete.
void recheck_collectives(Block& block, int warp);
void recheck_barriers(Block& block);
void recheck_cluster(Cluster& cluster);
/// Checks copies, barriers and registers at the end of a CTA.
void check_end(Block& block);

}  // namespace emulation
