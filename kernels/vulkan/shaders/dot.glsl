// dot is the sum of the products of four signed bytes each: one instruction of most GPUs.
#extension GL_EXT_spirv_intrinsics : require
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6018, 6019], id = 4450)
int dot_of_bytes(uint a, uint b, spirv_literal uint format); // OpSDot; DotProductInput4x8BitPacked, DotProduct
int dot(uint a, uint b) { return dot_of_bytes(a, b, 0); }     // PackedVectorFormat4x8Bit
