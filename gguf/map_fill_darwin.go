package gguf

// populate does nothing: pages come with their first write.
func populate([]byte) {}
