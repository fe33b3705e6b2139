// Asks xgrammar which texts its grammars accept. Input: a list of cases, each with a
// JSON schema or a grammar, and texts. Output: for each case a list of verdicts. The
// package calls itself a module but is none, so it is loaded by hand.
const {readFileSync} = require("node:fs"), {dirname} = require("node:path");
const path = require.resolve("@mlc-ai/web-xgrammar"), m = {exports: {}};
new Function("module", "exports", "require", "__filename", "__dirname", readFileSync(path, "utf8"))(m, m.exports, require, path, dirname(path));
const {Grammar, Testings} = m.exports;
(async () => {
  const out = [];
  for (const c of JSON.parse(readFileSync(0, "utf8"))) {
    const g = c.schema ? await Grammar.fromJSONSchema(c.schema) : await Grammar.fromEBNF(c.grammar);
    const verdicts = [];
    for (const text of c.texts) verdicts.push(await Testings.isGrammarAcceptString(g, text));
    out.push(verdicts);
    g.dispose();
  }
  process.stdout.write(JSON.stringify(out));
})().catch(e => { console.error(e); process.exit(1); });
