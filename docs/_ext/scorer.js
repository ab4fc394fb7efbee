// How the search ranks pages: as Sphinx does, but guides before scripts, notebooks and lists.
const LATER = /^(generated\/(gallery|notebooks)|changelog|contributing|begin$|guides$|index$)/;

var Scorer = {
  score: ([docname, title, anchor, descr, score]) => (LATER.test(docname) ? score - 3 : score),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
