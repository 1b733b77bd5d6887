// Answers plans of attention's families on 132 SMs. A line of the standard input is a family and its problem, the answer a line
// of name=value, or "-" where the family does not take it:
//   simt fp64 batches rows key_end d dv                       simt_tile index
//   tiles causal batches group sq sk d dv (wgmma's tiles)     mma batches group sq sk d dv shared_bytes
//   decode fp64 batches rows sk key_begin key_end d dv shared_bytes
#include <iostream>
#include <string>

#include "attention/decode/plan.h"
#include "attention/mma/plan.h"
#include "attention/simt/plan.h"
#include "attention/tiles/plan.h"
#include "attention/wgmma/tiles.h"

using namespace xgemm::attention;

namespace {

constexpr int kSmCount = 132;

struct Field {
  const char* name;
  std::int64_t value;
};
void show(std::initializer_list<Field> fields) {
  for (const Field& field : fields) std::cout << field.name << '=' << field.value << ' ';
}

void simt(std::istream& in) {
  SimtProblem p{.sm_count = kSmCount};
  in >> p.fp64 >> p.batches >> p.rows >> p.key_end >> p.d >> p.dv;
  const SimtPlan q = plan_simt(p);
  show({{"tile", q.tile},
        {"row_tiles", q.row_tiles},
        {"splits", q.splits},
        {"parallel", q.parallel},
        {"blocks", q.blocks},
        {"partials", q.partials},
        {"split_keys", kSplitKeys}});
}

void simt_tile(std::istream& in) {
  std::size_t index = 0;
  in >> index;
  if (index >= std::size(kSimtTiles)) return void(std::cout << '-');
  const SimtTile& t = kSimtTiles[index];
  show({{"fp64", t.fp64},
        {"head_size", t.head_size},
        {"keys", t.keys},
        {"rows", t.rows()},
        {"blocks", t.blocks},
        {"shared_bytes", t.shared_bytes()}});
}

void show_tiles(const Plan& q) {
  const Tile& t = q.info();
  show({{"tile", q.tile},
        {"packed", q.packed},
        {"tile_rows", q.tile_rows},
        {"row_tiles", q.row_tiles},
        {"tiles", q.tiles},
        {"section_heads", q.section_heads},
        {"splits", q.splits},
        {"split_keys", q.split_tiles * t.keys},
        {"through_memory", q.through_memory},
        {"partial_rows", q.partial_rows},
        {"ctas", q.ctas},
        {"head_size", t.head_size},
        {"value_size", t.value_size},
        {"rows", t.rows()},
        {"consumers", t.consumers},
        {"keys", t.keys}});
}

void tiles(std::istream& in) {
  Problem p{.table = kWgmmaTiles, .possible = true, .sm_count = kSmCount};
  in >> p.causal >> p.batches >> p.group >> p.sq >> p.sk >> p.d >> p.dv;
  p.key_end = p.sk;
  const auto q = plan_tiles(p);
  q ? show_tiles(*q) : void(std::cout << '-');
}

void mma(std::istream& in) {
  Problem p{.possible = true, .sm_count = kSmCount};
  std::int64_t shared_bytes = 0;
  in >> p.batches >> p.group >> p.sq >> p.sk >> p.d >> p.dv >> shared_bytes;
  p.key_end = p.sk;
  const auto q = plan_mma(p, shared_bytes);
  if (!q) return void(std::cout << '-');
  show_tiles(*q);
  show({{"shares_items", q->shares_items()}, {"shared_bytes", mma_shared_bytes(q->info())}, {"own_splits", q->own_splits}});
}

void decode(std::istream& in) {
  SimtProblem p;
  std::int64_t sk = 0, shared_bytes = 0;
  in >> p.fp64 >> p.batches >> p.rows >> sk >> p.key_begin >> p.key_end >> p.d >> p.dv >> shared_bytes;
  const auto q = plan_decode(p, sk, shared_bytes);
  if (!q) return void(std::cout << '-');
  const DecodeTile& t = q->info();
  show({{"tile", q->tile},
        {"row_tiles", q->row_tiles},
        {"split_keys", q->split_keys},
        {"first_split", q->first_split},
        {"splits", q->splits},
        {"ctas", q->ctas},
        {"partial_bytes", q->partial_bytes},
        {"head_size", t.head_size},
        {"rows", t.rows},
        {"ctas_an_sm", t.ctas},
        {"keys", t.keys()},
        {"shared_bytes", t.shared_bytes()}});
}

}  // namespace

int main() {
  for (std::string family; std::cin >> family; std::cout << std::endl)
    family == "simt"        ? simt(std::cin)
    : family == "simt_tile" ? simt_tile(std::cin)
    : family == "tiles"     ? tiles(std::cin)
    : family == "mma"       ? mma(std::cin)
                            : decode(std::cin);
}
