// Answers questions about plans of matrix products, one line each (matmul_plans.py): a family's offer with every field, the
// choice with the fields that tests/golden keeps, whether torch is expected to be faster, or whether a name forces a plan.
#include <iostream>
#include <sstream>
#include <string>

#include "matmul/plan/plan.h"
using namespace xgemm;
using namespace xgemm::matmul;

namespace {

struct Asked {
  Problem p;
  DeviceProperties gpu{.smem_per_block = 227 * 1024, .smem_per_sm = 228 * 1024};
  std::string forced, family;
};

bool read(Asked& q) {
  int dtype, precision, major;
  bool prepared, residual;
  std::int64_t a_offset, b_offset;
  q = {};
  Problem& p = q.p;
  std::cin >> dtype >> precision >> p.batch_invariant >> p.gated >> prepared >> residual >> major;
  std::cin >> p.m >> p.n >> p.k >> p.batches;
  std::cin >> p.a.row_stride >> p.a.col_stride >> a_offset >> p.b.row_stride >> p.b.col_stride >> b_offset;
  if (!(std::cin >> q.gpu.sm_count >> q.gpu.memory_bytes_per_second >> q.forced >> q.family)) return false;
  if (q.forced == "-") q.forced.clear();
  q.gpu.major = major;
  if (major == 8) q.gpu.smem_per_block = 163 * 1024, q.gpu.smem_per_sm = 164 * 1024;
  if (major == 12) q.gpu.smem_per_block = 99 * 1024, q.gpu.smem_per_sm = 100 * 1024;
  p.dtype = static_cast<DType>(dtype);
  p.precision = static_cast<Precision>(precision);
  p.batch_dims = p.batches > 1;
  p.batch[0] = p.batches;
  p.a.batch_stride[0] = p.batches > 1 ? p.m * p.k : 0, p.b.batch_stride[0] = p.batches > 1 ? p.n * p.k : 0;
  p.a.data = reinterpret_cast<const void*>(4096 + a_offset);
  p.b.data = reinterpret_cast<const void*>(4096 + b_offset);
  if (p.gated) p.up = p.b;
  if (prepared) p.prepared_b = p.b.data;
  if (residual) p.residual = {.data = p.a.data, .row_stride = p.n, .col_stride = 1};
  return true;
}

void print(const TensorOperand& x, const char* name) {
  if (x.copied || x.prepared) std::cout << (x.prepared ? " prepared_" : " copied_") << name;
}

/// Prints " name=value" for each; the names are words of one text.
void show(const char* names, const auto&... values) {
  std::istringstream in(names);
  std::string name;
  ((in >> name, std::cout << ' ' << name << '=' << values), ...);
}

struct Print {
  const Problem& p;
  bool all;
  void operator()(const SimtPlan& s) const {
    std::cout << info(s.tile).name;
    show("chunk chunks splits vector workspace", s.chunk, s.chunks, s.splits, s.vector, s.workspace_bytes);
  }
  void operator()(const GemvPlan& g) const {
    if (g.kernel == GemvKernel::sweep) return std::cout << "sweep", show("tiles splits many", g.tiles, g.splits, g.many);
    if (g.kernel == GemvKernel::outputs) return std::cout << "outputs", show("splits", g.splits);
    std::cout << (g.kernel == GemvKernel::dot ? "dot" : "gemv");
    if (g.kernel == GemvKernel::gemv) show("chunk chunks splits", g.chunk, g.chunks, g.splits);
    show("vector workspace", has_vectors(p, lines_of_a(p), 4) && has_vectors(p, lines_of_b(p), 4), g.workspace_bytes);
  }
  void operator()(const Fp64Plan& f) const {
    const bool a = has_vectors(p, lines_of_a(p), 2), b = has_vectors(p, lines_of_b(p), 2);
    std::cout << info(f.tile).name;
    show("segment split_blocks splits", f.segment, f.split_blocks, f.splits);
    std::cout << " vectors=" << a << b;
    show("workspace", f.workspace_bytes);
    if (all) show("vectors_a vectors_b blocks", a, b, f.blocks);
  }
  void operator()(const MmaPlan& m) const {
    std::cout << info(m.tile).name;
    show("bytes_a bytes_b", m.bytes_a, m.bytes_b);
    if (m.splits > 1) show("splits split_blocks partials counters", m.splits, m.split_blocks, m.partial_bytes, m.counter_bytes);
  }
  void operator()(const LargePlan& l) const {
    std::cout << info(l.tile).name;
    show("parts splits split_blocks workspace partials", l.parts, l.splits, l.split_blocks, l.workspace_bytes, l.partial_bytes);
    print(l.a, "a"), print(l.b, "b");
    if (!l.parts || all) return;
    std::cout << " fallback=", (*this)(l.fallback);
  }
  void operator()(const SlicedPlan& s) const {
    std::cout << info(s.tile).name;
    show("tiles splits apart", s.tiles, s.splits, s.apart);
  }
  void operator()(const Tf32Plan& t) const {
    const TileInfo& tile = info(t.tile);
    std::cout << tile.name << " swap_ab=" << t.swap_ab << " tiles=" << t.tiles_x << 'x' << t.tiles_y;
    show("splits split_blocks ctas", t.splits, t.split_blocks, t.ctas);
    show("workspace partials counters", t.workspace_bytes, t.partial_bytes, t.counter_bytes);
    print(t.a, "a"), print(t.b, "b");
    if (all) show("x y slot tiles_x tiles_y blocks", tile.m, tile.n, tile.k / kTf32TileK, t.tiles_x, t.tiles_y, t.blocks);
  }
  void operator()(const Bf16x3Plan& b) const {
    const TileInfo& tile = kBf16x3Tiles[0];
    std::cout << tile.name;
    show("tma vectors granule units ctas partials", b.b_tma(), b.a_vectors, b.granule, b.units, b.ctas, b.partial_bytes);
    if (all) show("rows tiles blocks", tile.m, b.tiles, b.blocks);
  }
  void operator()(const WgmmaPlan& t) const {
    std::cout << info(t.tile).name;
    show("parts chunk splits split_length columns", t.parts, t.chunk, t.splits, t.split_length, t.columns);
    show("cluster multicast memory_splits", t.cluster, t.multicast, t.memory_splits);
    show("workspace partials counters", t.workspace_bytes, t.partial_bytes, t.counter_bytes);
    if (t.b_as_it_lies) std::cout << " b_as_it_lies";
    if (t.swapped) std::cout << " swapped";
    print(t.a, "a"), print(t.b, "b");
    if (p.gated) print(t.up, "up");
    if (!t.parts || all) return;
    std::cout << " fallback=";
    t.fallback_bf16x3 ? void(std::cout << "bf16x3 ctas=" << t.fallback_bf16x3->ctas) : (*this)(t.fallback);
  }
};

std::optional<Candidate> offer(const Asked& q, const std::string& family) {
  const auto& [p, gpu, forced, families] = q;
  if (family == "cuda_cores") return offer_cuda_cores({p, gpu, forced});
  if (family == "outputs") return offer_outputs({p, gpu, forced});
  if (family == "wgmma") return offer_wgmma({p, gpu, forced});
  if (family == "mma") return offer_mma({p, gpu, forced});
  if (family == "large") return offer_large({p, gpu, forced});
  if (family == "fp64") return offer_fp64({p, gpu, forced});
  if (family == "sliced") return offer_sliced({p, gpu, forced});
  if (family == "tf32") return offer_tf32({p, gpu, forced});
  return offer_bf16x3({p, gpu, forced});
}

}  // namespace

int main() {
  for (Asked q; read(q);) {
    if (q.family == "names") {
      std::cout << (is_plan_name(q.forced) ? "known: " : "unknown: ") << plan_names();
    } else if (q.family == "torch") {
      std::cout << (make_plan(q.p, q.gpu).slower_than_torch ? "faster" : "slower");
    } else if (q.family == "choice") {
      const Plan plan = make_plan(q.p, q.gpu, q.forced);
      std::visit(Print{q.p, false}, plan.kernel);
      if (plan.up && !std::holds_alternative<Fp64Plan>(plan.kernel))
        std::cout << " and ", std::visit(Print{q.p, false}, *plan.up);
    } else {
      std::optional<Candidate> found;
      std::istringstream families(q.family);
      for (std::string family; !found && std::getline(families, family, ',');) found = offer(q, family);
      if (found) {
        std::visit(Print{q.p, true}, *found);
        std::cout << " seconds=" << seconds(*found);
      } else {
        std::cout << "-";
      }
    }
    std::cout << std::endl;
  }
}
