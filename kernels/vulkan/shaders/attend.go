package shaders

func init() {
	for name, dim := range map[string]uint32{"attend_64": 64, "attend_256": 256, "attend_512": 512, "attend_576": 576} {
		add("attend", name, "attend", dim)
	}
	for library, names := range map[string][]string{
		"attend": {"attend_any", "attend_combine"},
		"index":  {"index_scores", "index_scores_128", "index_select", "index_blocks", "index_mask"},
	} {
		for _, name := range names {
			add(library, name, name)
		}
	}
}
