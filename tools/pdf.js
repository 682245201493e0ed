// What a sheet of paper needs and a screen does not. `part` is the part of the book that the page belongs to, and `place` the
// address of the book, if it has been published. `sheets` come before the page, and `places` has the sheets of others and of their sections.
// `works` are those of the bibliography, by their ids. The function `syllables` says where words may break.
async ([here, there, part, { place, repository, author, title: book, release }, serif, sheets, places, works]) => {
  const article = document.querySelector("article");
  for (const [face, style] of [["Regular", "normal"], ["It", "italic"]])
    document.fonts.add(await new FontFace("Book Serif", `url(${serif}/SourceSerifPro-${face}.ttf)`, { style }).load());
  await Promise.all([document.fonts.ready, window.MathJax?.startup?.promise]);
  // Without an address of its own, the book names none.
  if (!place) {
    for (const a of document.links) if (a.href.includes(repository.replace("https://github.com", ""))) a.replaceWith(...a.childNodes);
    for (const pre of document.querySelectorAll("article pre")) if (pre.textContent.includes(repository)) pre.innerHTML = pre.innerHTML.replaceAll(repository, "ADDRESS");
  }
  const self = location.href.replace(here, "").split(".html")[0], cited = new Set();
  for (const a of document.links) {
    if (a.getAttribute("href").startsWith("#")) continue;
    const [page, id] = a.href.replace(here, "").split(".html"), sheet = places?.[page + id] ?? places?.[page];
    if (page.endsWith("/bibliography") && works[id.slice(1)]) cited.add(works[id.slice(1)]);
    a.href = a.href.replace(here, there);
    if (!sheet || !a.matches("article :is(p, li) a:not(nav *)") || page === self || /bibliography|glossary/.test(page)) continue;
    const before = document.createRange();
    before.setStart(a.closest("p, li"), 0);
    before.setEndBefore(a);
    a.append(/\([^)]*$/.test(before.toString()) ? `, p.\u00a0${sheet}` : `\u00a0(p.\u00a0${sheet})`);
  }
  if (!article) return;

  // Margins are wider where the book is bound. At the head of a left sheet is the part, of a right one the page; the first has neither,
  // but the name of the book at its foot. Chromium takes the first sheet for a right one, whatever its number.
  const title = document.title.split(" \u2014 ")[0], address = location.href.replace(here, there);
  const small = (words, size) => `{ content: ${words}; font: ${size}pt "Book Sans", sans-serif; color: #555;`;
  const sides = ["left", "right"], own = sheets % 2 ? ["right", "left"] : sides;
  document.head.appendChild(document.createElement("style")).textContent = `html { counter-reset: page ${sheets}; }` + sides.map((side, i) => `
    @page :${own[i]} { margin-${side}: 27mm; margin-${sides[1 - i]}: 33mm; @bottom-${side} ${small("counter(page)", 10)} }
      @top-${side} ${small(JSON.stringify(i ? title : part), 9)} width: 100%; text-align: ${side}; vertical-align: bottom;
        margin-bottom: 6mm; padding-bottom: 1.5mm; border-bottom: 0.5pt solid #999; } }`).join("") + `
    @page :first { @top-left { content: none; border: 0; } @top-right { content: none; border: 0; }
      @bottom-${sides[sheets % 2]} ${small(JSON.stringify(`${author}. ${book}. Release ${release}. CC BY 4.0.`), 8)} width: 80%; text-align: ${sides[sheets % 2]}; } }`;

  // The first page of the web is the preface, and a sheet says where its page lives.
  if (part === "Preface") {
    article.classList.add("preface");
    article.querySelector("h1").textContent = part;
    article.insertAdjacentHTML("beforeend", `<h2>On paper and on the web</h2><p>The figures and tables of the chapters come from running them.
      Some figures move on the web, and the notebooks can be run there. Hints, solutions and folded code end each chapter. Code that only
      draws a figure and the reference of the library are not printed.</p>`);
  }
  const lives = location.href.replace(here, place);
  if (place) article.querySelector("h1").insertAdjacentHTML("afterend", `<p class="lives">On the web: <a href="${lives}">${lives.replace("https://", "")}</a></p>`);

  // Hints, and then solutions, end a chapter, each with the number of its exercise.
  for (const hint of document.querySelectorAll("article details:not(.hide, .fedlib *)")) hint.open = true;
  const exercises = document.querySelector("#exercises"), answers = document.createElement("section");
  if (exercises) {
    const list = Object.values(works).filter((work) => cited.has(work)).map((work) => `<p>${work}</p>`).join("");
    if (list) exercises.parentElement.insertAdjacentHTML("beforeend", `<section id="works-cited"><h2>Works cited</h2>${list}</section>`);
    answers.id = "hints-and-solutions";
    answers.innerHTML = "<h2>Hints and solutions</h2>";
    exercises.parentElement.append(answers);
    let last = "";
    for (const e of exercises.querySelectorAll("strong, details:not(.hide)")) {
      last = e.textContent.match(/^Exercise (\d)/)?.[1] ?? last;
      if (!e.matches("details")) continue;
      e.querySelector(".sd-summary-text, summary").textContent = `Hint ${last}`;
      e.id = `hint-${last}`;
      answers.append(e);
    }
    for (const cell of document.querySelectorAll(".cell.tag_solution")) {
      for (const line of cell.querySelectorAll("pre > .line")) if (/^(# @title|### (BEGIN|END) SOLUTION)/.test(line.textContent)) line.remove();
      for (let line; (line = cell.querySelector("pre > .line:last-of-type")) && !line.textContent.trim(); ) line.remove();
      const words = cell.querySelector("summary p").textContent.replace(/^Code: /, ""), id = words.toLowerCase().replace(" ", "-");
      answers.append(Object.assign(document.createElement("p"), { id, className: "solution", textContent: words }));
      answers.append(cell.querySelector("[class*=highlight-]"), ...cell.querySelectorAll(".cell_output"));
      cell.remove();
    }
    for (const strong of exercises.querySelectorAll("p > strong:first-child")) {
      const number = strong.textContent.match(/^Exercise (\d)/)?.[1], at = (what) => places?.[`${self}#${what}-${number}`];
      const lead = (what) => `<a href="#${what}-${number}">${what} p.\u00a0${at(what)}</a>`;
      if (at("hint")) strong.insertAdjacentHTML("afterend", ` [${lead("hint")}, ${lead("solution")}]`);
    }
    // The folded code that others need comes before them. What only draws a figure stays on the web.
    const helpers = [...document.querySelectorAll(".cell:is(.tag_hide-input, .tag_hide-cell)")].filter((c) => !c.querySelector("figure"));
    if (helpers.length) answers.insertAdjacentHTML("beforebegin", `<section id="folded-code"><h2>Folded code</h2></section>`);
    for (const cell of helpers) {
      const words = cell.querySelector("summary p").textContent.replace(/^Code: /, "");
      for (const line of cell.querySelectorAll("pre > .line")) if (/^# @title/.test(line.textContent)) line.remove();
      answers.previousElementSibling.append(Object.assign(document.createElement("p"), { className: "solution", textContent: words }), cell.querySelector("[class*=highlight-]"));
      if (!cell.querySelector(".cell_output")) cell.remove();
    }
  }

  // Nothing moves on paper, and no answer is checked.
  const hint = [...document.querySelectorAll("#exercises > p")].find((p) => p.textContent.startsWith("Try each before you open"));
  hint?.replaceChildren("Hints and solutions are at the end of the chapter.");
  for (const cell of document.querySelectorAll("div.cell:has(figure.fedlib)")) {
    cell.querySelector(":scope > .cell_input")?.remove();
    if (!cell.querySelector(".controls, .drag")) continue;
    cell.querySelector("figcaption .caption-text")?.append(" It moves on the web.");
    const before = cell.previousElementSibling;
    if (before?.matches("p")) {
      before.innerHTML = before.innerHTML.replace(/(^|\. )(Adjust|Change|Drag|Move|On the page,) [^]*?[.?](?= |$)/g, (_, end) => end.trim()).trim();
      if (!before.textContent) before.remove();
    }
  }

  // Code has no empty line at its end, and no two in a row.
  for (const pre of document.querySelectorAll("article pre:has(> .line)")) {
    const empty = (line) => line && !line.textContent.trim();
    for (const line of [...pre.querySelectorAll(":scope > .line")]) if (empty(line) && empty(line.previousElementSibling)) line.remove();
    for (let line; empty((line = pre.querySelector(":scope > .line:last-of-type"))); ) line.remove();
  }
  // Code in a sentence may break as in a table.
  for (const code of document.querySelectorAll("article :is(p, li) > code")) code.innerHTML = code.innerHTML.replace(/(?<=\w)([._(,=])(?=\w)(?![^<]*>)/g, "$1<wbr>");

  // Code goes on on the next sheet between two statements that are not inside a block, with at least three lines on both, and not
  // before an empty line or one that closes a bracket.
  for (const line of document.querySelectorAll("article pre > .line")) {
    if (line.matches(":nth-last-child(1 of .line)")) line.style.breakAfter = "auto"; // the figure may stand on the next sheet
    const next = line.nextElementSibling?.textContent.trimEnd();
    const near = line.matches(":nth-child(-n + 2 of .line), :nth-last-child(-n + 3 of .line)");
    if (line.style.breakAfter) continue;
    if (near || /^([\s)\]}]|else|elif|$)/.test(next) || /^@/.test(line.textContent)) line.style.breakAfter = "avoid";
  }
  // A long name in a table breaks after a point or a line, and one with signs of plus after these.
  for (const cell of document.querySelectorAll("article td")) if (/\w\+\w/.test(cell.textContent)) cell.innerHTML = cell.innerHTML.replace(/(\w\+)(?=\w)(?![^<]*>)/g, "$1<wbr>");
  for (const code of document.querySelectorAll("article td :is(code, a.reference)")) code.innerHTML = code.innerHTML.replace(/([._])(?=\w)(?![^<]*>)/g, "$1<wbr>");
  // A name or two words at the head of a row stay on one line, and so does a short word elsewhere.
  for (const head of document.querySelectorAll("article tbody tr > *")) if (head.textContent.trim().length < (head.matches(":first-child") ? 20 : 12)) head.classList.add("one-line");

  // The folded code has a sheet, and words may break at the end of a line. Hyphens that break none go before they are printed, since no word with one could be found.
  const breaks = await syllables([...new Set(article.innerText.match(/[A-Za-z]{7,}/g))]);
  const soft = [], text = document.createTreeWalker(article, NodeFilter.SHOW_TEXT), one = document.createRange();
  while (text.nextNode()) {
    const node = text.currentNode, code = places?.[`${self}#folded-code`];
    if (!node.parentElement.closest("pre, mjx-container, svg")) node.data = node.data.replace(/ ± /g, "\u00a0±\u00a0").replace(/(\d) %/g, "$1\u00a0%");
    if (!node.parentElement.closest("p") || node.parentElement.closest("figure, table, code, mjx-container, .fedlib, .cell_output, .lives, .solution")) continue;
    if (code) node.data = node.data.replace(/\bfolded cell\b/, `folded cell (p.\u00a0${code})`);
    node.data = node.data.replace(/[A-Za-z]{7,}/g, (word) => breaks[word] ?? word);
    soft.push(node);
  }
  const edge = (node, i) => {
    one.setStart(node, i);
    one.setEnd(node, i + 1);
    return one.getBoundingClientRect();
  };

  const tall = (251 / 25.4) * 96, wide = (150 / 25.4) * 96;
  const columns = document.head.appendChild(document.createElement("style"));
  columns.textContent = "article { width: 150mm; }";
  // Code with a line that is too long for the sheet has smaller letters, if they need not be very small.
  for (const pre of document.querySelectorAll("article pre:not(.fedlib *)")) {
    const room = pre.clientWidth - 19; // less what is left and right of a line, and a little
    pre.classList.add("whole");
    const fits = room / (pre.offsetWidth - 17), size = parseFloat(getComputedStyle(pre).fontSize) * fits;
    pre.classList.remove("whole");
    if (fits < 1 && size > 8.5) pre.style.setProperty("font-size", `${size}px`, "important");
  }
  // Where the sheet is too narrow for a table, it has smaller letters and may break code, and if need be also words after its first column.
  // The columns are as wide as makes it lowest: they give to each other while that helps.
  for (const table of document.querySelectorAll("article table:not(.fedlib *)")) {
    const all = table.parentElement.clientWidth, heads = [...table.rows[0].cells];
    table.querySelector("colgroup")?.remove();
    for (const head of heads) head.style.width = "auto";
    for (const much of ["wide", "wider"]) if (table.offsetWidth > all + 1) table.classList.add(much);
    if (table.querySelector("[colspan]")) continue;
    const widths = (width) => ((table.style.width = width), heads.map((head) => head.getBoundingClientRect().width));
    const most = widths("max-content"), least = widths("1px"), now = widths("100%");
    table.style.removeProperty("width");
    if (most.reduce((a, b) => a + b) <= all || least.reduce((a, b) => a + b) > all) continue;
    const cells = [...table.querySelectorAll("td > p")];
    const height = (tried) => {
      heads.forEach((head, i) => head.style.setProperty("width", `${(100 * tried[i]) / all}%`, "important"));
      return table.offsetHeight + cells.reduce((sum, cell) => sum + cell.offsetHeight, 0) / 1e5; // of two that are alike, the one with fewer lines
    };
    table.classList.add("fitted-columns");
    let low = height(now);
    for (let step = all / 8; step > 4; step /= 2)
      for (let better = true; better; ) {
        better = false;
        for (const i of now.keys())
          for (const j of now.keys()) {
            const tried = now.with(i, now[i] - step);
            tried[j] += step;
            if (i === j || tried[i] < least[i] || height(tried) >= low) continue;
            [low, better] = [height(tried), true];
            now.splice(0, now.length, ...tried);
          }
      }
    height(now);
  }

  // Columns of a sheet's size break as the sheets do, which shows where each part of the page will stand.
  columns.textContent = "article { columns: 150mm; column-gap: 0; column-fill: auto; height: 251mm; width: 150mm; }";
  const at = (e, end) => {
    const from = article.getBoundingClientRect(), box = [...e.getClientRects()].at(end ? -1 : 0);
    return { sheet: Math.round((box.left - from.left) / wide - 0.3), y: (box[end ? "bottom" : "top"] - from.top) / tall };
  };
  const seen = (e, side) => {
    do e = e[side]; while (e && !e.getClientRects().length);
    return e;
  };
  for (const text of document.querySelectorAll("article section > p")) {
    if (!text.textContent.startsWith("What to see")) continue;
    text.classList.add("see");
    let before = text.previousElementSibling;
    while (before && !before.querySelector(".caption-number, table")) before = before.previousElementSibling;
    const number = [...(before?.querySelectorAll(".caption-number") ?? [])].at(-1)?.textContent.trim();
    if (before) text.querySelector("strong").textContent = `What to see in ${number ?? "the table"}.`;
  }
  // A heading and a line do not stand alone at the foot of a sheet.
  for (const text of document.querySelectorAll("article :is(h2, h3) + p")) if (text.offsetHeight < 24) text.style.breakAfter = "avoid";

  // The next element to read, of this section or of one after it.
  const next = (e) => {
    let found = seen(e, "nextElementSibling");
    if (!found && e.parentElement.matches("section")) return next(e.parentElement);
    while (found?.matches("section")) found = [...found.children].find((child) => child.getClientRects().length);
    return found;
  };
  const ends = (e) => e.matches("p, ul, ol") && /[.?!]\)?$/.test(e.textContent.trim());
  // Where a figure leaves the foot of a sheet white, the text after it comes first, with its formulas. If much stays white, so does the next section.
  const fill = (figure) => {
    let before = seen(figure, "previousElementSibling");
    while (before?.matches("h2, h3")) before = seen(before, "previousElementSibling") ?? seen(before.parentElement, "previousElementSibling");
    while (before) {
      const end = at(before, true), passed = "p, ul, ol, div.math";
      if (at(figure).sheet === end.sheet || end.y > 0.9) return;
      let text = next(figure);
      if (text?.matches("h2, h3") && end.y < 0.75) text = next(text);
      while (text?.matches(passed) && !ends(text)) text = next(text);
      if (!text?.matches(passed) || /^(Predict|Exercise|Hints and)/.test(text.textContent) || (end.y > 0.78 && /^What to see/.test(text.textContent))) return;
      const home = document.createComment("");
      figure.replaceWith(home);
      text.after(figure);
      if (at(text).sheet !== end.sheet) return home.replaceWith(figure);
      home.remove();
      before = text;
    }
  };
  // A cell or a table goes to the next sheet as a whole, if it leaves little of this one white.
  const keep = (part, from) => {
    if (!part.getClientRects().length) return;
    part.style.removeProperty("break-inside");
    if (at(part).sheet !== at(part, true).sheet && at(part).y > from) part.style.setProperty("break-inside", "avoid", "important");
  };
  const figures = [...document.querySelectorAll("article .cell_output:has(figure)")].map((figure) => [figure, figure.closest("div.cell")]);
  // A few lines do not take a sheet of their own at the end, if the others have room for them.
  const laid = (height) => {
    article.style.lineHeight = height;
    for (const [figure, cell] of figures) cell.after(figure);
    for (const e of article.querySelectorAll(".cell_output:has(figure), .cell_input, section > div[class*=highlight-], table:not(.fedlib *)"))
      e.matches(".cell_output") ? fill(e) : keep(e, e.matches("table") ? 0.85 : 0.9);
    return article.scrollWidth > 1.5 * wide && at(article.lastElementChild, true).y < 0.3;
  };
  if (!["", 1.43, 1.41, 1.39, 1.37].some((height) => !laid(height))) laid("");
  for (const node of soft)
    for (let i = node.data.length - 1; node.isConnected && (i = node.data.lastIndexOf("\u00ad", i)) > 0; i--)
      if (edge(node, i - 1).right <= edge(node, i + 1).left + 1) node.deleteData(i, 1);
  // A section may begin at the foot of a sheet with nothing, and its heading on the next.
  const head = (e) => (e.matches("section, details") && e.querySelector("summary, h1, h2, h3, h4")) || e;
  const found = Object.fromEntries([...article.querySelectorAll(":is(section, dt, .citation, .solution, details)[id]")].filter((e) => e.getClientRects().length).map((e) => [e.id, at(head(e)).sheet]));
  for (const e of article.querySelectorAll("span[id]")) if (!e.textContent && e.parentElement.getClientRects().length) found[e.id] = at(head(e.parentElement)).sheet;
  // The words that a chapter has in bold, where it has them first.
  if (exercises)
    for (const e of [...document.querySelectorAll("article section > :is(p, ul, ol) strong")].reverse()) {
      const words = e.textContent.replace(/\u00ad/g, "");
      const short = e.nextSibling?.textContent?.match(/^ \((\w[\w-]+)[;,)]/)?.[1]; // as in **Clustered federated learning** (CFL; ...
      for (const term of [words, short]) if (e.getClientRects().length && /^[a-zA-Z][\w-]+( [a-z-]+){0,2}$/.test(term ?? "")) found[`**${term}`] = at(e).sheet;
    }
  // Each place that a link leads to has a name of its own in the whole book.
  for (const a of article.querySelectorAll('a[href^="#"]')) {
    const to = document.getElementById(decodeURIComponent(a.hash.slice(1))), own = `${self.replaceAll("/", "-")}-${to?.id}`;
    if (!to) continue;
    if (!document.getElementById(own)) head(to).prepend(Object.assign(document.createElement("span"), { id: own }));
    a.href = `#${own}`;
  }
  columns.remove();
  return found;
}
