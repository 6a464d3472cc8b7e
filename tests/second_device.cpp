// A device beside the CPU that is made of host memory: what holds tensors of both in one operation fails there as on a GPU.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

namespace {

constexpr auto kSecond = c10::DeviceType::PrivateUse1;

struct HostMemory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* data = c10::alloc_cpu(bytes);
    return {data, data, &c10::free_cpu, c10::Device(kSecond, 0)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &c10::free_cpu; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};
HostMemory memory;
REGISTER_ALLOCATOR(kSecond, &memory);
// What is asked is done before the call returns: there is nothing to wait for.
struct Guard final : c10::impl::NoOpDeviceGuardImpl<kSecond> {
  c10::Device exchangeDevice(c10::Device) const override { return {kSecond, 0}; }
  c10::Device getDevice() const override { return {kSecond, 0}; }
  c10::Stream getStream(c10::Device) const noexcept override { return c10::Stream(c10::Stream::DEFAULT, {kSecond, 0}); }
  c10::Stream getDefaultStream(c10::Device) const override { return c10::Stream(c10::Stream::DEFAULT, {kSecond, 0}); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return c10::Stream(c10::Stream::DEFAULT, {kSecond, 0}); }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  void synchronizeEvent(void*) const override {}
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    auto* own = storage.unsafeGetStorageImpl();
    auto fresh = memory.allocate(bytes);
    memory.copy_data(fresh.get(), own->data(), std::min(bytes, own->nbytes()));
    own->set_data_ptr_noswap(std::move(fresh));
    own->set_nbytes(bytes);
  }
};
const bool registered = [] {
  static Hooks hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
  return true;
}();

at::Tensor made(c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor made_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(dtype));
}

// The same memory as a tensor on the CPU.
at::Tensor on_cpu(const at::Tensor& self) {
  if (!self.device().is_privateuseone()) return self;
  auto found = at::from_blob(self.data_ptr(), self.sizes(), self.strides(), [self](void*) {},
                             at::TensorOptions().dtype(self.dtype()));
  if (self.is_conj()) found = found.conj();
  if (self.is_neg()) found = at::_neg_view(found);
  return found;
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& to, bool) {
  on_cpu(to).copy_(on_cpu(self));
  return to;
}

const at::Tensor& resized(const at::Tensor& self, c10::IntArrayRef size, std::optional<at::MemoryFormat>) {
  auto* made = self.unsafeGetTensorImpl();
  made->set_sizes_contiguous(size);
  const size_t bytes = (made->storage_offset() + made->numel()) * made->dtype().itemsize();
  if (made->storage().nbytes() < bytes) at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(made->storage(), bytes);
  return self;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& to) {
  if (to.sizes() != self.sizes()) {
    if (to.device().is_privateuseone()) resized(to, self.sizes(), std::nullopt); else to.resize_(self.sizes());
  }
  return copy_from(self, to, false);
}

at::Scalar scalar(const at::Tensor& self) { return on_cpu(self).item(); }

at::Tensor& set_storage(at::Tensor& self, at::Storage source, int64_t offset, c10::IntArrayRef size, c10::IntArrayRef stride) {
  return at::native::set_storage_cpu_(self, source, offset, size, stride);
}

at::Tensor& set_whole(at::Tensor& self, at::Storage source) {
  const int64_t count = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return at::native::set_storage_cpu_(self, std::move(source), 0, {count}, {});
}

// Every other operation runs on the CPU, if all its tensors lie here; numbers may lie anywhere, and what indexes too.
void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& name = op.schema().name();
  const bool indexing = name == "aten::index" || name == "aten::index_put_" || name == "aten::_index_put_impl_" ||
                        name == "aten::_unsafe_index" || name == "aten::index_put";
  bool here = false, there = false;
  auto look = [&](const at::Tensor& each) {
    if (!each.defined()) return;
    if (each.device().is_privateuseone()) here = true;
    else if (each.dim() > 0) there = true;
  };
  const auto arguments = torch::jit::last(*stack, op.schema().arguments().size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto& each = arguments[i];
    if (indexing && i == 1) continue;
    if (each.isTensor()) look(each.toTensor());
    else if (each.isTensorList()) for (const at::Tensor& one : each.toTensorVector()) look(one);
    else if (each.isOptionalTensorList()) for (const auto& one : each.toOptionalTensorVector()) if (one) look(*one);
  }
  TORCH_CHECK(!(here && there), "Expected all tensors to be on the same device, but found at least two devices, second:0 and cpu! (",
              name, ")");
  if (indexing) {
    TORCH_CHECK(arguments[0].toTensor().device().is_privateuseone(), "indices should be either on cpu or on the same device as the indexed tensor");
  }
  at::native::cpu_fallback(op, stack);
}

}  // namespace

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", made);
  m.impl("empty_strided", made_strided);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", at::native::view);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("unfold", at::native::unfold);
  m.impl("view_as_real", at::native::view_as_real);
  m.impl("view_as_complex", at::native::view_as_complex);
  m.impl("set_.source_Storage_storage_offset", set_storage);
  m.impl("set_.source_Storage", set_whole);
  m.impl("resize_", resized);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", scalar);
}


// What a copy is taken of may be conjugated or negated: to resolve that first takes a copy.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
