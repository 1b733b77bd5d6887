// Asynchronous copies: cp.async, bulk copies, TMA, st.async. Each is done at a random later time.
#include <algorithm>
#include <bit>
#include <cstring>

#include "device/ptx/bulk_copy.cuh"
#include "device/ptx/cp_async.cuh"
#include "state.h"
#include "tensor_map.h"

namespace emulation {
namespace {

/// One copy to shared memory, whose bytes complete on an mbarrier.
struct Load final : Stream {
  std::function<void()> copy;
  bool done = false;
  explicit Load(std::function<void()> copy) : Stream(kLoad), copy(std::move(copy)) { owned = true; }
  void step() override {
    done = true;
    --home->loads;
    copy();
  }
  bool ready() const override { return !done; }
};

void start(std::function<void()> copy) {
  auto* const load = new Load(std::move(copy));
  load->home = current->block->cluster;
  ++load->home->loads;
  stream_changed(*load);
  maybe_yield();
}

template <class T>
T& stream_in(std::unique_ptr<T>& stream) {
  if (!stream) {
    stream = std::make_unique<T>();
    stream->block = current->block, stream->home = current->block->cluster;
  }
  return *stream;
}
StoreStream& stores() { return stream_in(current->stores); }
CopyStream& copies() { return stream_in(current->copies); }

void store(std::function<void()> read, std::function<void()> write) {
  stores().stores.push_back({std::move(read), std::move(write)});
  stores().issue();
  maybe_yield();
}

std::uint64_t swizzled(std::uint64_t place, int swizzle) {
  return swizzle == 0 ? place : place ^ (place >> 7 & (swizzle / 16 - 1)) << 4;
}

/// Calls row(offset of the row in the box in bytes, global memory of the row or null, first and end byte of its part in
/// bounds).
template <class Row>
void each_row(const TensorMap& map, const int* at, const Row& row) {
  int index[5] = {};
  const int bytes = map.box[0] * map.element_bytes;
  const std::int64_t first = std::clamp<std::int64_t>(-std::int64_t{at[0]}, 0, map.box[0]),
                     last = std::clamp<std::int64_t>(map.sizes[0] - at[0], first, map.box[0]);
  for (std::int64_t place = 0;; place += bytes) {
    bool inside = last > first;
    unsigned char* from = map.data + std::int64_t{at[0]} * map.element_bytes;
    for (int d = 1; d < map.rank; ++d) {
      const std::int64_t c = std::int64_t{at[d]} + index[d];
      inside = inside && c >= 0 && c < map.sizes[d];
      from += c * map.strides[d];
    }
    row(place, inside ? from : nullptr, static_cast<int>(first) * map.element_bytes, static_cast<int>(last) * map.element_bytes);
    int d = 1;
    while (d < map.rank && ++index[d] == map.box[d]) index[d++] = 0;
    if (d >= map.rank) return;
  }
}

}  // namespace

void GroupedStream::issue() {
  ++issued;
  stream_changed(*this);
}
void GroupedStream::one_done() {
  ++done;
  wake_all(waiters);
}
void GroupedStream::wait(int pending, const char* what) {
  for (; groups.size() > pending; groups.pop_front())
    while (done < groups.front()) {
      waiters.push_back(current);
      emulation::block(what, 0, 0, Where::current());
    }
}

void cp_async(void* to, const void* from, int bytes, int count, Where where) {
  shared_pointer(shared_address_of(to, where), bytes, bytes, where);
  if (count < 0 || count > bytes) fail(text("cp.async of ", count, " of ", bytes, " bytes"), where);
  if (count > 0 && reinterpret_cast<std::uintptr_t>(from) % bytes) fail("cp.async from an unaligned address", where);
  copies().copies.push_back({to, from, bytes, count, 0, where});
  copies().issue();
}
void CopyStream::step() {
  const Copy copy = copies.front();
  copies.pop_front();
  one_done();
  if (copy.barrier) return arrive(*block, copy.barrier, 0, copy.where);
  std::memset(copy.to, 0, copy.bytes);
  if (copy.count > 0) std::memcpy(copy.to, copy.from, copy.count);
}
void cp_async_wait(int pending) { copies().wait(pending, "cp.async.wait_group"); }

void tensor_load(void* destination, const void* map_bytes, const void* mbarrier, std::initializer_list<int> at, unsigned ctas,
                 Where where) {
  const TensorMap map = tensor_map_from(map_bytes);
  if (map.rank != at.size()) fail(text("a TMA load of ", at.size(), " coordinates by a map of ", int{map.rank}, " dims"), where);
  const std::uint32_t to = shared_address_of(destination, where), barrier = shared_address_of(mbarrier, where);
  std::array<int, 5> from{};
  std::copy(at.begin(), at.end(), from.begin());
  if (ctas == 0) ctas = 1u << (to >> 24);
  if (ctas >> current->block->cluster->blocks.size()) fail("a multicast to CTAs that the cluster does not have", where);
  for (unsigned left = ctas; left != 0; left &= left - 1) {
    const auto target = static_cast<std::uint32_t>(std::countr_zero(left)) << 24;
    const std::uint32_t place = (to & 0xffffff) | target, on = (barrier & 0xffffff) | target;
    shared_pointer(place, map.box_bytes(), 128, where);
    shared_pointer(on, 8, 8, where);
    Block& home = block_at(place);
    check_unfenced(home, place & 0xffffff, map.box_bytes(), where);
    start([=, &home] {
      each_row(map, from.data(), [&](std::int64_t offset, const unsigned char* row, int first, int last) {
        const int bytes = map.box[0] * map.element_bytes;
        for (int b = 0; b < bytes; b += map.element_bytes) {
          std::uint32_t value = 0;
          if (row && b >= first && b < last) std::memcpy(&value, row + b, map.element_bytes);
          if (map.tf32) value = to_tf32(value);
          const std::uint64_t byte = swizzled((place & 0xffffff) + static_cast<std::uint64_t>(offset + b), map.swizzle);
          std::memcpy(home.window + byte, &value, map.element_bytes);
        }
      });
      complete_bytes(home, on, map.box_bytes(), where);
    });
  }
}

void tensor_store(const void* map_bytes, const void* source, std::initializer_list<int> at, Where where) {
  const TensorMap map = tensor_map_from(map_bytes);
  if (map.rank != at.size()) fail(text("a TMA store of ", at.size(), " coordinates by a map of ", int{map.rank}, " dims"), where);
  const std::uint32_t from = shared_address_of(source, where);
  const auto size = map.box_bytes();
  shared_pointer(from, size, 128, where);
  const unsigned char* const window = current->block->window;
  const std::uint64_t place = from & 0xffffff;
  std::array<int, 5> to{};
  std::copy(at.begin(), at.end(), to.begin());
  auto buffer = std::make_shared<std::vector<unsigned char>>(size);
  const auto read = [=] {
    for (std::int64_t b = 0; b < size; b += 16)
      std::memcpy(buffer->data() + b, window + swizzled(place + b, map.swizzle), std::min<std::int64_t>(16, size - b));
  };
  const auto write_row = [=](std::int64_t offset, unsigned char* row, int first, int last) {
    if (row) std::memcpy(row + first, buffer->data() + offset + first, last - first);
  };
  store(read, [=] { each_row(map, to.data(), write_row); });
}

void StoreStream::step() {
  if (!stores.empty() && (unwritten.empty() || random_bits() % 2)) {
    stores.front().read();
    unwritten.push_back(std::move(stores.front()));
    stores.pop_front();
    return one_done();
  }
  unwritten.front().write();
  unwritten.pop_front();
}

void bulk_wait_read(int pending) { stores().wait(pending, "cp.async.bulk.wait_group.read"); }

void store_async(std::uint32_t to, const void* value, int bytes, std::uint32_t barrier, Where where) {
  void* const target = shared_pointer(to, bytes, bytes, where);
  shared_pointer(barrier, 8, 8, where);
  if (to >> 24 != barrier >> 24) fail("st.async to one CTA and its mbarrier in another", where);
  Block& home = block_at(barrier);
  std::array<unsigned char, 16> copy{};
  std::memcpy(copy.data(), value, bytes);
  start([=, &home] {
    std::memcpy(target, copy.data(), bytes);
    complete_bytes(home, barrier, bytes, where);
  });
}

}  // namespace emulation

void xgemm::cp_async_commit() { emulation::copies().commit(); }

namespace xgemm::ptx {

using namespace emulation;

void barrier_arrive_copies(Barrier* barrier, Where where) {
  copies().copies.push_back({nullptr, nullptr, 0, 0, mbarrier_address(barrier, where), where});
  copies().issue();
}

void bulk_load(void* to, const void* from, std::uint32_t bytes, Barrier* barrier, Where where) {
  if (bytes % 16 || reinterpret_cast<std::uintptr_t>(from) % 16) fail("a bulk copy that is not aligned to 16 bytes", where);
  const std::uint32_t place = shared_address(to, where), on = mbarrier_address(barrier, where);
  shared_pointer(place, bytes, 16, where);
  Block& home = block_at(on);
  check_unfenced(home, place & 0xffffff, bytes, where);
  start([=, &home] {
    std::memcpy(to, from, bytes);
    complete_bytes(home, on, bytes, where);
  });
}

void bulk_store(void* to, const void* from, std::uint32_t bytes, Where where) {
  if (bytes % 16 || reinterpret_cast<std::uintptr_t>(to) % 16) fail("a bulk copy that is not aligned to 16 bytes", where);
  shared_pointer(shared_address(from, where), bytes, 16, where);
  auto buffer = std::make_shared<std::vector<unsigned char>>(bytes);
  store([=] { std::memcpy(buffer->data(), from, bytes); }, [=] { std::memcpy(to, buffer->data(), bytes); });
}

void tma_store_commit() { stores().commit(); }

}  // namespace xgemm::ptx
