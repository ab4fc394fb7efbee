// The site's own search, without a browser: node tests/search.mjs SITE QUERY... prints, for each
// query, the pages found, best first, as JSON.
import { readFileSync } from "node:fs";
import vm from "node:vm";

const [site, ...queries] = process.argv.slice(2);
const context = vm.createContext({
  document: { getElementById: () => null },
  localStorage: { setItem: () => {} },
  SPHINX_HIGHLIGHT_ENABLED: false,
  DOCUMENTATION_OPTIONS: {},
  Documentation: {},
  _: (text) => text,
  _ready: () => {},
});
const scripts = ["_static/language_data.js", "_static/searchtools.js", "searchindex.js"];
const code = scripts.map((name) => readFileSync(`${site}/${name}`, "utf8")).join("\n");
context.window = context;
context.queries = queries;
const search = `
queries.map((query) => {
  const results = Search._performSearch(...Search._parseQuery(query));
  return results.reverse().map((result) => result[0]);
})`;
console.log(JSON.stringify(vm.runInContext(`${code}\n;${search}`, context)));
