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

struct Print {
  const Problem& p;
  bool all;
  void operator()(const SimtPlan& s) const {
    std::cout << info(s.tile).name << " chunk=" << s.chunk << " chunks=" << s.chunks << " splits=" << s.splits
              << " vector=" << s.vector << " workspace=" << s.workspace_bytes;
  }
  void operator()(const GemvPlan& g) const {
    if (g.kernel == GemvKernel::sweep) {
      std::cout << "sweep tiles=" << g.tiles << " splits=" << g.splits << " many=" << g.many;
      return;
    }
    if (g.kernel == GemvKernel::outputs) {
      std::cout << "outputs splits=" << g.splits;
      return;
    }
    std::cout << (g.kernel == GemvKernel::dot ? "dot" : "gemv");
    if (g.kernel == GemvKernel::gemv) std::cout << " chunk=" << g.chunk << " chunks=" << g.chunks << " splits=" << g.splits;
    std::cout << " vector=" << (has_vectors(p, lines_of_a(p), 4) && has_vectors(p, lines_of_b(p), 4))
              << " workspace=" << g.workspace_bytes;
  }
  void operator()(const Fp64Plan& f) const {
    std::cout << info(f.tile).name << " segment=" << f.segment << " split_blocks=" << f.split_blocks << " splits=" << f.splits
              << " vectors=" << has_vectors(p, lines_of_a(p), 2) << has_vectors(p, lines_of_b(p), 2)
              << " workspace=" << f.workspace_bytes;
    if (all)
      std::cout << " vectors_a=" << has_vectors(p, lines_of_a(p), 2) << " vectors_b=" << has_vectors(p, lines_of_b(p), 2)
                << " blocks=" << f.blocks;
  }
  void operator()(const MmaPlan& m) const {
    std::cout << info(m.tile).name << " bytes_a=" << m.bytes_a << " bytes_b=" << m.bytes_b;
    if (m.splits > 1)
      std::cout << " splits=" << m.splits << " split_blocks=" << m.split_blocks << " partials=" << m.partial_bytes
                << " counters=" << m.counter_bytes;
  }
  void operator()(const LargePlan& l) const {
    std::cout << info(l.tile).name << " parts=" << l.parts << " splits=" << l.splits << " split_blocks=" << l.split_blocks
              << " workspace=" << l.workspace_bytes << " partials=" << l.partial_bytes;
    print(l.a, "a"), print(l.b, "b");
    if (!l.parts || all) return;
    std::cout << " fallback=";
    (*this)(l.fallback);
  }
  void operator()(const SlicedPlan& s) const {
    std::cout << info(s.tile).name << " tiles=" << s.tiles << " splits=" << s.splits << " apart=" << s.apart;
  }
  void operator()(const Tf32Plan& t) const {
    const TileInfo& tile = info(t.tile);
    std::cout << tile.name << " swap_ab=" << t.swap_ab << " tiles=" << t.tiles_x << 'x' << t.tiles_y << " splits=" << t.splits
              << " split_blocks=" << t.split_blocks << " ctas=" << t.ctas << " workspace=" << t.workspace_bytes
              << " partials=" << t.partial_bytes << " counters=" << t.counter_bytes;
    print(t.a, "a"), print(t.b, "b");
    if (all)
      std::cout << " x=" << tile.m << " y=" << tile.n << " slot=" << tile.k / kTf32TileK << " tiles_x=" << t.tiles_x
                << " tiles_y=" << t.tiles_y << " blocks=" << t.blocks;
  }
  void operator()(const Bf16x3Plan& b) const {
    const TileInfo& tile = kBf16x3Tiles[0];
    std::cout << tile.name << " tma=" << b.b_tma() << " vectors=" << b.a_vectors << " granule=" << b.granule
              << " units=" << b.units << " ctas=" << b.ctas << " partials=" << b.partial_bytes;
    if (all) std::cout << " rows=" << tile.m << " tiles=" << b.tiles << " blocks=" << b.blocks;
  }
  void operator()(const WgmmaPlan& t) const {
    std::cout << info(t.tile).name << " parts=" << t.parts << " chunk=" << t.chunk << " splits=" << t.splits
              << " split_length=" << t.split_length << " columns=" << t.columns << " cluster=" << t.cluster
              << " multicast=" << t.multicast << " memory_splits=" << t.memory_splits << " workspace=" << t.workspace_bytes
              << " partials=" << t.partial_bytes << " counters=" << t.counter_bytes;
    if (t.b_as_it_lies) std::cout << " b_as_it_lies";
    if (t.swapped) std::cout << " swapped";
    print(t.a, "a"), print(t.b, "b");
    if (p.gated) print(t.up, "up");
    if (!t.parts || all) return;
    std::cout << " fallback=";
    if (t.fallback_bf16x3)
      std::cout << "bf16x3 ctas=" << t.fallback_bf16x3->ctas;
    else
      (*this)(t.fallback);
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
