package shaders

func init() {
	for _, name := range []string{"hc_init", "hc_collapse", "hc_expand", "hc_mix", "hc_head", "hc_gate"} {
		add("hyper-connections", name, name)
	}
	for name, t := range map[string]uint32{"f32": 0, "f16": 1, "bf16": 30} {
		add("hyper-connections", "hc_products_"+name+"_1", "hc_products", t, 1, 2)
		add("hyper-connections", "hc_products_"+name+"_4", "hc_products", t, 4, 4)
		add("hyper-connections", "hc_expand_products_"+name, "hc_expand_products", t)
	}
	for _, name := range []string{"route_top", "route_table", "expert_mask", "expert_compact"} {
		add("route", name, name)
	}
}
