package distributed

import _ "ringmaster/internal/only64bit"
