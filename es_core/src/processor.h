// What this processor, and the system on it, can run beyond the base of its architecture.
#pragma once

namespace fedlearn {

#if defined(__x86_64__)
bool has_v3();       // x86-64-v3: vectors of 256 bits
bool has_v4();       // x86-64-v4: of 512 bits
bool has_v3_vnni();  // dot products of bytes, 256 bits (AVX-VNNI)
bool has_v4_vnni();  // and 512 bits (AVX512-VNNI)
bool has_polynomials();  // products of polynomials (PCLMULQDQ), with SSE4.1
#elif defined(__aarch64__)
bool has_dot();      // dot products of bytes (FEAT_DotProd)
#endif

}  // namespace fedlearn
