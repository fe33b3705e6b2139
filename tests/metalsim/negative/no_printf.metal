// rejected: undeclared identifier 'printf'
#include <metal_stdlib>
using namespace metal;
kernel void k(device float *a [[buffer(0)]]) {
    printf("x");
    a[0] = 0;
}
