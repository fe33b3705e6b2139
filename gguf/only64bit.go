package gguf

import _ "ringmaster/internal/only64bit"
