// The file that the device writes for one dispatch and the runner replays:
// numbers in native byte order, in this order.
//
//   "MSLDUMP1"
//   text: path of the library without its suffix, text: name of the kernel
//   u32: constants; for each text: name or nothing, u32 index, u32 size, 16 bytes
//   u32 grid[3], u32 threadgroup[3], u32 exact
//   u32: regions of memory; for each u64 size, then its bytes
//   31 times: i32 region or -1, u64 offset, u64 length of threadgroup memory
//
// A text is an u32 length and its bytes.
#ifndef MSL_DUMP_H
#define MSL_DUMP_H
#define MSL_DUMP_MAGIC "MSLDUMP1"
#endif
