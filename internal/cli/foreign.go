package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// foreign says which of our flags has the meaning of a flag of another server.
type foreign struct {
	ours string // the hint is for commands that have this flag
	how  string
}

// How the most common ones are said here.
const (
	useListen   = "use --listen ADDRESS:PORT, such as --listen 127.0.0.1:8080"
	useURL      = "use --url http://HOST:PORT"
	useModel    = "use --model FILE"
	useContext  = "use --ctx TOKENS, or -c"
	useBackend  = "use --backend metal for the GPU of a Mac and vulkan for another, which --backend auto finds by itself; all layers are computed there"
	useActive   = "use --max-active, the most sequences of one step"
	useBatch    = "use --max-batch, the most tokens of one step"
	useHub      = "use --model hf:OWNER/REPO:QUANT"
	useKeyFile  = "use --api-keys FILE"
	useName     = "use --model-name NAME"
	useGroup    = "one model runs on several hosts with --distributed, or with 'ringmaster launch'"
	useSampling = "each request has its own sampling parameters"
	isMapped    = "leave it out: weights are always mapped from the file"
	isAutomatic = "leave it out: there is nothing to choose"
)

// foreignFlags maps flags of llama.cpp's server, vLLM, SGLang and Ollama to ours. Short
// ones are as they are written behind one dash.
var foreignFlags = map[string][]foreign{
	"port":                   {{"coordinator-port", "use --coordinator-port, or --listen for the port of the API"}, {"listen", useListen}, {"url", useURL}},
	"host":                   {{"listen", useListen}, {"url", useURL}},
	"ngl":                    {{"backend", useBackend}},
	"n-gpu-layers":           {{"backend", useBackend}},
	"gpu-layers":             {{"backend", useBackend}},
	"device":                 {{"backend", useBackend}},
	"m":                      {{"url", "the server has the model; name another one with --model-name"}, {"", "this command needs no model"}},
	"model-path":             {{"model", useModel}},
	"hf-repo":                {{"model", useHub}},
	"hf":                     {{"model", useHub}},
	"ctx-size":               {{"ctx", useContext}},
	"max-model-len":          {{"ctx", useContext}},
	"context-length":         {{"ctx", useContext}},
	"b":                      {{"max-batch", useBatch}},
	"ub":                     {{"max-batch", useBatch}},
	"batch-size":             {{"max-batch", useBatch}},
	"ubatch-size":            {{"max-batch", useBatch}},
	"max-num-batched-tokens": {{"max-batch", useBatch}},
	"np":                     {{"max-active", useActive}},
	"parallel":               {{"max-active", useActive}},
	"max-num-seqs":           {{"max-active", useActive}},
	"tensor-parallel-size":   {{"world-size", useGroup}},
	"tp":                     {{"world-size", useGroup}},
	"rpc":                    {{"world-size", useGroup}},
	"nnodes":                 {{"world-size", "use --world-size, the number of ranks"}},
	"node-rank":              {{"rank", "use --rank"}},
	"api-key-file":           {{"api-keys", useKeyFile}},
	"a":                      {{"model-name", useName}},
	"alias":                  {{"model-name", useName}},
	"served-model-name":      {{"model-name", useName}},
	"ssl-cert-file":          {{"tls-cert", "use --tls-cert FILE"}},
	"ssl-key-file":           {{"tls-key", "use --tls-key FILE"}},
	"ssl-certfile":           {{"tls-cert", "use --tls-cert FILE"}},
	"ssl-keyfile":            {{"tls-key", "use --tls-key FILE"}},
	"temp":                   {{"max-active", useSampling}},
	"temperature":            {{"max-active", useSampling}},
	"top-k":                  {{"max-active", useSampling}},
	"top-p":                  {{"max-active", useSampling}},
	"seed":                   {{"max-active", useSampling}},
	"mmap":                   {{"model", isMapped}},
	"no-mmap":                {{"model", isMapped}},
	"mlock":                  {{"model", isMapped}},
	"fa":                     {{"model", isAutomatic}},
	"flash-attn":             {{"model", isAutomatic}},
	"jinja":                  {{"model", isAutomatic}},
	"log-file":               {{"log", "the log goes to standard error; redirect it"}},
}

// foreignHint says which flag of a command has the meaning of an unknown one that other
// servers have; "" if that is not known. name is the text behind the dashes.
func foreignHint(c *cobra.Command, name string) string {
	for _, f := range foreignFlags[name] {
		if f.ours == "" || c.Flags().Lookup(f.ours) != nil {
			return "; " + f.how
		}
	}
	return ""
}

// modelHint says how a model is named that was given as an argument, "" if arg is none or
// the command takes no model.
func modelHint(c *cobra.Command, arg string) string {
	if c.Flags().Lookup("model") != nil && (strings.HasSuffix(arg, ".gguf") || strings.HasPrefix(arg, "hf:")) {
		return "; name the model with --model " + arg
	}
	return ""
}
