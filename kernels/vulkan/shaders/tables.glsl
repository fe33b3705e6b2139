// Written by tables.go.
const uint iq4nl_words[4] = {
	0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u, 
};
const uint mxfp4_words[4] = {
	0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu, 
};
