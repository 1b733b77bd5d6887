// Asynchronous copies: cp.async, bulk copies, TMA, st.async. Each is done at a random later time.
#include <algorithm>
#include <bit>
#include <cstring>

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

StoreStream& stores_of(Fiber& fiber) {
  if (!fiber.stores) fiber.stores = std::make_unique<StoreStream>(), fiber.stores->home = fiber.block->cluster;
  return *fiber.stores;
}

CopyStream& copies_of(Fiber& fiber) {
  if (!fiber.copies) fiber.copies = std::make_unique<CopyStream>(fiber.block), fiber.copies->home = fiber.block->cluster;
  return *fiber.copies;
}

std::uint64_t swizzled(std::uint64_t place, int swizzle) {
  if (swizzle == 128) return place ^ (place >> 7 & 7) << 4;
  if (swizzle == 64) return place ^ (place >> 7 & 3) << 4;
  if (swizzle == 32) return place ^ (place >> 7 & 1) << 4;
  return place;
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

void cp_async(void* to, const void* from, int bytes, int count, Where where) {
  const std::uint32_t address = shared_address_of(to, where);
  shared_pointer(address, bytes, bytes, where);
  if (count < 0 || count > bytes) fail(text("cp.async of ", count, " of ", bytes, " bytes"), where);
  if (count > 0 && reinterpret_cast<std::uintptr_t>(from) % static_cast<unsigned>(bytes))
    fail("cp.async from an unaligned address", where);
  CopyStream& stream = copies_of(*current);
  stream.copies.push_back({to, from, bytes, count, 0, where});
  ++stream.issued;
  stream_changed(stream);
}
void CopyStream::step() {
  const Copy copy = copies.front();
  copies.pop_front();
  ++done;
  wake_all(waiters);
  if (copy.barrier) return arrive(*block, copy.barrier, 0, copy.where);
  std::memset(copy.to, 0, copy.bytes);
  if (copy.count > 0) std::memcpy(copy.to, copy.from, copy.count);
}
void cp_async_commit() {
  CopyStream& stream = copies_of(*current);
  stream.groups.push_back(stream.issued);
}
void cp_async_wait(int pending) {
  CopyStream& stream = copies_of(*current);
  while (stream.groups.size() > pending) {
    while (stream.done < stream.groups.front()) {
      stream.waiters.push_back(current);
      block("cp.async.wait_group", 0, 0, Where::current());
    }
    stream.groups.pop_front();
  }
}
void cp_async_arrive(std::uint32_t barrier, Where where) {
  shared_pointer(barrier, 8, 8, where);
  CopyStream& stream = copies_of(*current);
  stream.copies.push_back({nullptr, nullptr, 0, 0, barrier, where});
  ++stream.issued;
  stream_changed(stream);
}

void bulk_load(std::uint32_t to, const void* from, std::uint32_t bytes, std::uint32_t barrier, Where where) {
  if (bytes % 16 || reinterpret_cast<std::uintptr_t>(from) % 16) fail("a bulk copy that is not aligned to 16 bytes", where);
  void* const target = shared_pointer(to, bytes, 16, where);
  shared_pointer(barrier, 8, 8, where);
  Block& home = block_at(barrier);
  check_unfenced(home, to & 0xffffff, bytes, where);
  start([=, &home] {
    std::memcpy(target, from, bytes);
    complete_bytes(home, barrier, bytes, where);
  });
}

void tensor_load(std::uint32_t to, const void* map_bytes, std::uint32_t barrier, int rank, const int* at, unsigned ctas,
                 Where where) {
  const TensorMap map = tensor_map_from(map_bytes);
  if (map.rank != rank) fail(text("a TMA load of ", rank, " coordinates by a map of ", int{map.rank}, " dims"), where);
  std::array<int, 5> from{};
  std::copy_n(at, rank, from.begin());
  const auto cluster_size = static_cast<unsigned>(current->block->cluster->blocks.size());
  if (ctas == 0) ctas = 1u << (to >> 24);
  if (ctas >> cluster_size) fail("a multicast to CTAs that the cluster does not have", where);
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

void bulk_store(void* to, std::uint32_t from, std::uint32_t bytes, Where where) {
  if (bytes % 16 || reinterpret_cast<std::uintptr_t>(to) % 16) fail("a bulk copy that is not aligned to 16 bytes", where);
  const auto* const source = static_cast<const unsigned char*>(shared_pointer(from, bytes, 16, where));
  auto buffer = std::make_shared<std::vector<unsigned char>>(bytes);
  StoreStream& stream = stores_of(*current);
  stream.stores.push_back({[=] { std::memcpy(buffer->data(), source, bytes); }, [=] { std::memcpy(to, buffer->data(), bytes); }});
  ++stream.issued;
  stream_changed(stream);
  maybe_yield();
}

void tensor_store(const void* map_bytes, std::uint32_t from, int rank, const int* at, Where where) {
  const TensorMap map = tensor_map_from(map_bytes);
  if (map.rank != rank) fail(text("a TMA store of ", rank, " coordinates by a map of ", int{map.rank}, " dims"), where);
  const auto size = map.box_bytes();
  shared_pointer(from, size, 128, where);
  const unsigned char* const window = current->block->window;
  const std::uint64_t place = from & 0xffffff;
  std::array<int, 5> to{};
  std::copy_n(at, rank, to.begin());
  auto buffer = std::make_shared<std::vector<unsigned char>>(size);
  StoreStream& stream = stores_of(*current);
  stream.stores.push_back({[=] {
                             for (std::size_t b = 0; b < size; b += 16)
                               std::memcpy(buffer->data() + b, window + swizzled(place + b, map.swizzle),
                                           std::min<std::size_t>(16, size - b));
                           },
                           [=] {
                             each_row(map, to.data(), [&](std::int64_t offset, unsigned char* row, int first, int last) {
                               if (row) std::memcpy(row + first, buffer->data() + offset + first, last - first);
                             });
                           }});
  ++stream.issued;
  stream_changed(stream);
  maybe_yield();
}

void StoreStream::read_one() {
  stores.front().read();
  unwritten.push_back(std::move(stores.front()));
  stores.pop_front();
  ++read;
  wake_all(waiters);
}
void StoreStream::step() {
  if (!stores.empty() && (unwritten.empty() || random_bits() % 2)) return read_one();
  unwritten.front().write();
  unwritten.pop_front();
}

void bulk_commit() {
  StoreStream& stream = stores_of(*current);
  stream.groups.push_back(stream.issued);
}
void bulk_wait_read(int pending) {
  StoreStream& stream = stores_of(*current);
  while (stream.groups.size() > pending) {
    while (stream.read < stream.groups.front()) {
      stream.waiters.push_back(current);
      block("cp.async.bulk.wait_group.read", 0, 0, Where::current());
    }
    stream.groups.pop_front();
  }
}

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
