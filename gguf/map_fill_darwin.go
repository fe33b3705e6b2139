package gguf

// huge does nothing: the system has no huge pages for files.
func huge([]byte) {}

// populate does nothing: pages come with their first write.
func populate([]byte) {}
