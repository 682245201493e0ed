// What the search puts first: chapters, then the other pages, then the library's reference.
var Scorer = {
  score: ([page, , , , score]) => score + (page.startsWith("notebooks/") ? 20 : page.startsWith("book/api/") ? -20 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 0, 1: 0, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
