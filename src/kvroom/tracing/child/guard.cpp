// Builds of PyTorch without CUDA have no guard for its devices, which indexing asks for: one that does nothing.
#include <c10/core/impl/DeviceGuardImplInterface.h>
namespace c10::impl {
C10_REGISTER_GUARD_IMPL(CUDA, NoOpDeviceGuardImpl<DeviceType::CUDA>)
}
