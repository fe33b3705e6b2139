// rejected: calls itself
#include <metal_stdlib>
using namespace metal;
int g(int n);
int f(int n) { return n < 2 ? 1 : g(n - 1); }
int g(int n) { return f(n); }
kernel void k(device int *a [[buffer(0)]]) { a[0] = f(a[1]); }
