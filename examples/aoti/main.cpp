// Runs the package that export.py compiled, without Python. It calls xgemm's operators but does not contain them: libxgemm.so has
// to be loaded first, here by linking with xgemm::xgemm. Exit code 0: the operators agree with torch's own.
#include <ATen/ATen.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <cstdio>

int main(int, char** argv) {
  torch::inductor::AOTIModelPackageLoader model(argv[1]);
  const auto results = model.run({at::randn({5, 10, 64})});
  const double difference = (results.at(0) - results.at(1)).abs().max().item<double>();
  std::printf("AOTInductor package: xgemm and torch differ by at most %.1e\n", difference);
  return difference < 1e-5 ? 0 : 1;  // not for NaN
}
