// GNUstep's headers include this file when blocks are enabled.
#include <Block.h>
