#pragma once
extern int *__error(void);
#define errno (*__error())
#define ETIMEDOUT 60
