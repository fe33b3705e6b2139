#pragma once
float fabsf(float);
float floorf(float);
float sqrtf(float);
double floor(double);
