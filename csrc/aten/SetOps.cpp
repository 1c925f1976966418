// Counting and sets: bincount, histc, unique, isin. They are composed of sorts, scans and scatters on the device.
#include <ATen/ATen.h>
#include <ATen/NativeFunctions.h>
#include <ATen/native/Histogram.h>
#include <ATen/native/TensorCompare.h>

#include "aten/support/Launch.h"
#include "aten/support/Library.h"
#include "aten/support/Pointwise.h"
#include "aten/support/Scalars.h"
#include "aten/support/Structured.h"

namespace netcl {
namespace {

using at::Tensor;

Tensor bincount(const Tensor& self, const std::optional<Tensor>& weights, int64_t minlength) {
  TORCH_CHECK(minlength >= 0, "minlength should be >= 0");
  TORCH_CHECK(self.dim() == 1 && at::isIntegralType(self.scalar_type(), false),
              "bincount only supports 1-d non-negative integral inputs.");
  const bool weighted = weights.has_value() && weights->defined();
  TORCH_CHECK(!weighted || (weights->dim() == 1 && weights->size(0) == self.size(0)),
              "weights should be 1-d and have the same length as input");
  const auto type = !weighted ? at::kLong : weights->scalar_type() == at::kFloat ? at::kFloat : at::kDouble;
  if (self.numel() == 0) return at::zeros({minlength}, self.options().dtype(at::kLong));
  const auto [least, most] = at::aminmax(self);
  TORCH_CHECK(least.item<int64_t>() >= 0, "bincount only supports 1-d non-negative integral inputs.");
  const int64_t bins = std::max(most.item<int64_t>() + 1, minlength);
  Tensor out = at::zeros({bins}, self.options().dtype(type));
  const Tensor w = weighted ? weights->to(type) : at::ones({1}, out.options()).expand(self.sizes());
  return out.scatter_add_(0, self.to(at::kLong), w);
}

// Assigns bins as the CPU does: they have equal widths, and the last one is closed.
Tensor& histc_out(const Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max, Tensor& out) {
  TORCH_CHECK(bins > 0, "bins must be > 0");
  TORCH_CHECK(self.scalar_type() == out.scalar_type(),
              "torch.histc: input tensor and hist tensor should have the same dtype");
  TORCH_CHECK_NOT_IMPLEMENTED(!self.is_complex(), "histc is not implemented for ", self.scalar_type());
  // A float holds no number of a bin beyond 2^24.
  const auto type = self.scalar_type() == at::kDouble || bins > 1 << 24 ? at::kDouble : at::kFloat;
  const Tensor x = self.reshape({-1}).to(type);
  double lo = in_dtype(min, self.scalar_type()).to<double>(), hi = in_dtype(max, self.scalar_type()).to<double>();
  if (lo == hi && x.numel() > 0) {
    lo = x.min().item<double>();
    hi = x.max().item<double>();
  }
  if (lo == hi) {
    lo -= 1;
    hi += 1;
  }
  TORCH_CHECK(std::isfinite(lo) && std::isfinite(hi), "range of [", lo, ", ", hi, "] is not finite");
  TORCH_CHECK(lo < hi, "max must be larger than min");
  // What is in no bin is counted behind the last one.
  const Tensor bin = at::empty(x.sizes(), x.options().dtype(at::kLong));
  auto iter =
      at::TensorIteratorConfig().add_owned_output(bin).add_owned_const_input(x).check_all_same_dtype(false).build();
  const auto count = static_cast<double>(bins);
  pointwise(iter, "unary.cl", "bin", {lo, count, hi - lo, hi}, type);
  const Tensor counts = at::zeros({bins + 1}, x.options())
                            .scatter_add_(0, bin, at::ones({1}, x.options()).expand(x.sizes()))
                            .narrow(0, 0, bins);
  at::native::resize_output(out, {bins});
  out.copy_(counts);
  return out;
}
Tensor histc(const Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max) {
  Tensor out = at::empty({bins}, self.options());
  return histc_out(self, bins, min, max, out);
}

// --- histogram: the front half is ATen's -----------------------------------------------------------------

// Every bin but the last is open at its upper end. `samples` is (M, D), `edges` holds D tensors.
void histogramdd_kernel(const Tensor& samples, const std::optional<Tensor>& weight, bool density, Tensor& hist,
                        const at::TensorList& edges) {
  TORCH_CHECK_NOT_IMPLEMENTED(samples.is_floating_point(), "histogram is not implemented for ", samples.scalar_type());
  Tensor bin = at::zeros({samples.size(0)}, samples.options().dtype(at::kLong));
  Tensor inside = at::ones({samples.size(0)}, samples.options().dtype(at::kBool));
  for (int64_t d = 0; d < samples.size(1); d++) {
    const Tensor x = samples.select(1, d).contiguous(), edge = edges[d].contiguous();
    const int64_t bins = edge.numel() - 1;
    inside.logical_and_(x.ge(edge[0])).logical_and_(x.le(edge[bins]));
    bin.mul_(bins).add_(at::searchsorted(edge, x, false, /*right=*/true).sub_(1).clamp_(0, bins - 1));
  }
  const bool weighted = weight.has_value() && weight->defined();
  const Tensor amount = weighted ? weight->reshape({-1}).to(hist.scalar_type()).masked_fill(inside.logical_not(), 0)
                                 : inside.to(hist.scalar_type());
  Tensor counts = at::zeros({hist.numel()}, hist.options()).scatter_add_(0, bin, amount).view(hist.sizes());
  if (density) {
    counts.div_(counts.sum());
    for (int64_t d = 0; d < samples.size(1); d++) {
      std::vector<int64_t> shape(hist.dim(), 1);
      shape[d] = hist.size(d);
      counts.div_(edges[d].diff().view(shape));
    }
  }
  hist.copy_(counts);
}
// The edges have equal distances. ATen corrects a computed bin by its neighbours' edges; a search among the edges gives
// the same.
void histogramdd_linear_kernel(const Tensor& samples, const std::optional<Tensor>& weight, bool density, Tensor& hist,
                               const at::TensorList& edges, bool) {
  histogramdd_kernel(samples, weight, density, hist, edges);
}
void outer_bin_edges_kernel(const Tensor& input, const int64_t dims, std::vector<double>& leftmost,
                            std::vector<double>& rightmost) {
  const Tensor rows = input.reshape({-1, dims});
  const Tensor low = rows.amin(0).to(at::kCPU).to(at::kDouble), high = rows.amax(0).to(at::kCPU).to(at::kDouble);
  for (int64_t d = 0; d < dims; d++) {
    leftmost[d] = low[d].item<double>();
    rightmost[d] = high[d].item<double>();
  }
}

// --- unique -----------------------------------------------------------------------------------------------

struct Runs {
  Tensor starts;   // the position of the first element of each run of equal elements
  Tensor of_each;  // the run that each element belongs to
  Tensor counts;
};
// `starts_run`: whether an element differs from the one before it.
Runs runs(const Tensor& starts_run, bool inverse, bool counts) {
  const auto options = starts_run.options().dtype(at::kLong);
  Runs r;
  r.starts = starts_run.nonzero().view({-1});
  r.of_each = inverse ? starts_run.cumsum(0).sub_(1) : at::empty({0}, options);
  r.counts = at::empty({0}, options);
  if (counts) {
    const Tensor ends = at::cat({r.starts.slice(0, 1), at::full({1}, starts_run.numel(), options)});
    r.counts = ends.sub(r.starts);
  }
  return r;
}
Tensor first_of_run(const Tensor& x) {
  Tensor first = at::ones({x.size(0)}, x.options().dtype(at::kBool));
  if (x.size(0) > 1) {
    const Tensor differs = x.slice(0, 1).ne(x.slice(0, 0, x.size(0) - 1));
    first.slice(0, 1).copy_(x.dim() == 1 ? differs : differs.flatten(1).any(1));
  }
  return first;
}

std::tuple<Tensor, Tensor, Tensor> unique2(const Tensor& self, bool sorted, bool return_inverse, bool return_counts) {
  const auto options = self.options().dtype(at::kLong);
  const Tensor none = at::empty({0}, options);
  if (self.numel() == 0) {
    return {at::empty({0}, self.options()), return_inverse ? at::empty(self.sizes(), options) : none, none};
  }
  const auto [values, order] = self.reshape({-1}).sort(0);
  const Runs r = runs(first_of_run(values), return_inverse, return_counts);
  Tensor inverse = none;
  if (return_inverse) inverse = at::empty({self.numel()}, options).scatter_(0, order, r.of_each).view(self.sizes());
  return {values.index_select(0, r.starts), inverse, r.counts};
}
std::tuple<Tensor, Tensor> unique(const Tensor& self, bool sorted, bool return_inverse) {
  auto [values, inverse, counts] = unique2(self, sorted, return_inverse, false);
  return {values, inverse};
}
std::tuple<Tensor, Tensor, Tensor> unique_consecutive(const Tensor& self, bool return_inverse, bool return_counts,
                                                      std::optional<int64_t> dim) {
  const auto options = self.options().dtype(at::kLong);
  const Tensor none = at::empty({0}, options);
  if (!dim || (*dim == 0 && self.dim() == 1)) {
    if (self.numel() == 0) {
      return {at::empty({0}, self.options()), return_inverse ? at::empty(self.sizes(), options) : none, none};
    }
    const Tensor x = self.reshape({-1});
    const Runs r = runs(first_of_run(x), return_inverse, return_counts);
    return {x.index_select(0, r.starts), return_inverse ? r.of_each.view(self.sizes()) : none, r.counts};
  }
  const int64_t d = at::maybe_wrap_dim(*dim, self.dim());
  TORCH_CHECK(self.numel() > 0 || self.size(d) == 0,
              "unique_consecutive: there are 0 sized dimensions, and they aren't selected by `dim`, so "
              "unique cannot be applied");
  if (self.numel() == 0) return {self.clone(), none, none};
  const Runs r = runs(first_of_run(self.movedim(d, 0)), return_inverse, return_counts);
  return {self.index_select(d, r.starts), r.of_each, r.counts};
}

std::tuple<Tensor, Tensor, Tensor> unique_dim_consecutive(const Tensor& self, int64_t dim, bool return_inverse,
                                                          bool return_counts) {
  return netcl::unique_consecutive(self, return_inverse, return_counts, dim);
}

// Sorts rows lexicographically: a stable sort by each column, the last column first.
std::tuple<Tensor, Tensor, Tensor> unique_dim(const Tensor& self, int64_t dim, bool sorted, bool return_inverse,
                                              bool return_counts) {
  const auto options = self.options().dtype(at::kLong);
  const Tensor none = at::empty({0}, options);
  const int64_t d = at::maybe_wrap_dim(dim, self.dim());
  TORCH_CHECK(self.numel() > 0 || (self.size(d) == 0 && std::count(self.sizes().begin(), self.sizes().end(), 0) == 1),
              "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied");
  if (self.numel() == 0) return {self.clone(), none, none};
  const Tensor rows = self.movedim(d, 0).reshape({self.size(d), -1});
  Tensor order = at::arange(rows.size(0), options);
  for (int64_t c = rows.size(1) - 1; c >= 0; c--) {
    const Tensor column = rows.select(1, c).index_select(0, order);
    order = order.index_select(0, std::get<1>(column.sort(/*stable=*/true, 0, /*descending=*/false)));
  }
  const Runs r = runs(first_of_run(rows.index_select(0, order)), return_inverse, return_counts);
  const Tensor inverse = return_inverse ? at::empty_like(order).scatter_(0, order, r.of_each) : none;
  c10::DimVector sizes(self.movedim(d, 0).sizes());
  sizes[0] = r.starts.size(0);
  return {rows.index_select(0, order.index_select(0, r.starts)).view(sizes).movedim(0, d), inverse, r.counts};
}

void isin_kernel(const Tensor& elements, const Tensor& test, bool invert, const Tensor& out) {
  const Tensor found = elements.unsqueeze(-1).eq(test.reshape({-1})).any(-1);
  out.copy_(invert ? found.logical_not() : found);
}

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("bincount", &bincount);
  m.impl("histc", &histc);
  m.impl("histc.out", &histc_out);
  using Range = std::optional<at::ArrayRef<double>>;
  using Weight = const std::optional<Tensor>&;
  using Pair = std::tuple<Tensor, Tensor>;
  using PairRef = std::tuple<Tensor&, Tensor&>;
  using Bins = Pair (*)(const Tensor&, const Tensor&, Weight, bool);
  using BinsOut = PairRef (*)(const Tensor&, const Tensor&, Weight, bool, Tensor&, Tensor&);
  using Count = Pair (*)(const Tensor&, int64_t, Range, Weight, bool);
  using CountOut = PairRef (*)(const Tensor&, int64_t, Range, Weight, bool, Tensor&, Tensor&);
  using Counts = Tensor (*)(const Tensor&, at::IntArrayRef, Range, Weight, bool);
  using Edges = Tensor (*)(const Tensor&, at::TensorList, Weight, bool);
  m.impl("histogram.bins_tensor", &OnOneDevice<static_cast<Bins>(at::native::histogram)>::call);
  m.impl("histogram.bins_tensor_out", &OnOneDevice<static_cast<BinsOut>(at::native::histogram_out)>::call);
  m.impl("histogram.bin_ct", &OnOneDevice<static_cast<Count>(at::native::histogram)>::call);
  m.impl("histogram.bin_ct_out", &OnOneDevice<static_cast<CountOut>(at::native::histogram_out)>::call);
  m.impl("_histogramdd_bin_edges", &OnOneDevice<&at::native::histogramdd_bin_edges>::call);
  m.impl("_histogramdd_from_bin_cts", &OnOneDevice<static_cast<Counts>(at::native::_histogramdd)>::call);
  m.impl("_histogramdd_from_bin_tensors", &OnOneDevice<static_cast<Edges>(at::native::_histogramdd)>::call);
  m.impl("_unique", &unique);
  m.impl("_unique2", &unique2);
  m.impl("unique_dim", &unique_dim);
  m.impl("unique_consecutive", &unique_consecutive);
  m.impl("unique_dim_consecutive", &unique_dim_consecutive);
  structured<at::native::structured_isin_Tensor_Tensor_out>(m, "isin.Tensor_Tensor", nullptr, "isin.Tensor_Tensor_out");
  structured<at::native::structured_isin_Tensor_Scalar_out>(m, "isin.Tensor_Scalar", nullptr, "isin.Tensor_Scalar_out");
  structured<at::native::structured_isin_Scalar_Tensor_out>(m, "isin.Scalar_Tensor", nullptr, "isin.Scalar_Tensor_out");
}

}  // namespace
}  // namespace netcl

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(histogramdd_stub, &netcl::histogramdd_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(histogramdd_linear_stub, &netcl::histogramdd_linear_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(histogram_select_outer_bin_edges_stub, &netcl::outer_bin_edges_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(isin_default_stub, &netcl::isin_kernel)
}  // namespace at::native
