// GNUstep's headers ask for this file when blocks are switched on.
#include <Block.h>
