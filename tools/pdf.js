// What a sheet of paper needs and a screen does not. `part` is the part of the book that the page belongs to, and `place` the
// address of the book, if it has been published.
async ([here, there, book, part, place]) => {
  const article = document.querySelector("article");
  await Promise.all([document.fonts.ready, window.MathJax?.startup?.promise]);
  for (const a of document.links)
    if (!a.getAttribute("href").startsWith("#")) a.href = a.href.replace(here, there);
  if (!article) return;

  // The first sheet has the name of the book at its head, the others that of the page; at the right stands the part.
  const title = document.title.split(" \u2014 ")[0], address = location.href.replace(here, there);
  const head = (side, words, more) => `@top-${side} { content: ${JSON.stringify(words)}; ${more} margin-bottom: 6mm; padding-bottom: 1.5mm;
    vertical-align: bottom; border-bottom: 0.5pt solid #999; font: 9pt "Book Sans", sans-serif; color: #555; }`;
  const heads = (words) => head("left", words, "width: 70%;") + head("right", part, "width: 30%; text-align: right;");
  document.head.appendChild(document.createElement("style")).textContent = `@page { ${heads(title)} } @page :first { ${heads(book)} }`;

  // The first page of the web is the preface, and a sheet says where its page lives.
  if (part === "Preface") {
    article.classList.add("preface");
    article.querySelector("h1").textContent = part;
    article.insertAdjacentHTML("beforeend", `<h2>On paper and on the web</h2><p>The figures and tables of the chapters come from running them.
      Some figures move on the web, and the notebooks can be run there. The folded cells of the notebooks, the solutions of the exercises and
      the reference of the library are not printed.</p>`);
  }
  const lives = location.href.replace(here, place);
  if (place) article.querySelector("h1").insertAdjacentHTML("afterend", `<p class="lives">On the web: <a href="${lives}">${lives.replace("https://", "")}</a></p>`);

  // Hints stand after the exercises, each with the number of its own.
  for (const hint of document.querySelectorAll("article details:not(.hide, .fedlib *)")) hint.open = true;
  let last = "";
  for (const e of document.querySelectorAll("#exercises :is(strong, details:not(.hide))")) {
    last = e.textContent.match(/^Exercise (\d)/)?.[1] ?? last;
    if (e.matches("details")) {
      e.querySelector(".sd-summary-text, summary").textContent = `Hint ${last}`;
      e.closest("#exercises").append(e);
    }
  }

  // Nothing moves on paper, and no answer is checked.
  const elsewhere = (words) => Object.assign(document.createElement("a"), { href: address, textContent: words });
  const answers = [...document.querySelectorAll("#exercises > p")].find((p) => p.textContent.startsWith("Try each before you open"));
  answers?.replaceChildren("The solutions are on the ", elsewhere("chapter\u2019s page"), ".");
  for (const cell of document.querySelectorAll("div.cell:has(figure.fedlib)")) {
    cell.querySelector(":scope > .cell_input")?.remove();
    if (!cell.querySelector(".controls, .drag")) continue;
    cell.querySelector("figcaption .caption-text")?.append(" It moves on the ", elsewhere("chapter\u2019s page"), ".");
    const before = cell.previousElementSibling;
    if (before?.matches("p")) {
      before.innerHTML = before.innerHTML.replace(/(^|\. )(Adjust|Change|Drag|Move|On the page,) [^]*?[.?](?= |$)/g, (_, end) => end.trim()).trim();
      if (!before.textContent) before.remove();
    }
  }

  // Code goes on on the next sheet between two statements, with at least three lines on both: not after a line that opens a block or a
  // bracket, nor before an empty one or one that closes it.
  for (const line of document.querySelectorAll("article pre > .line")) {
    const next = line.nextElementSibling?.textContent.trim();
    const near = line.matches(":nth-child(-n + 2 of .line), :nth-last-child(-n + 3 of .line)");
    if (near || /^([)\]}]|$)/.test(next) || /[([{]$|^\s*(@|"""|(def|class|for|while|with|if|elif|else|try)\b.*:$)/.test(line.textContent.trimEnd())) line.style.breakAfter = "avoid";
  }
  // A name or two words at the head of a row stay on one line.
  for (const head of document.querySelectorAll("article tbody tr > :first-child")) if (head.textContent.trim().length < 20) head.style.whiteSpace = "nowrap";

  // Columns of a sheet's size break as the sheets do, which shows where each part of the page will stand.
  const tall = (251 / 25.4) * 96, wide = (158 / 25.4) * 96;
  const columns = document.head.appendChild(document.createElement("style"));
  columns.textContent = "article { columns: 158mm; column-gap: 0; column-fill: auto; height: 251mm; width: 158mm; }";
  const at = (e, end) => {
    const from = article.getBoundingClientRect(), box = [...e.getClientRects()].at(end ? -1 : 0);
    return { sheet: Math.round((box.left - from.left) / wide - 0.3), y: (box[end ? "bottom" : "top"] - from.top) / tall };
  };
  const seen = (e, side) => {
    do e = e[side]; while (e && !e.getClientRects().length);
    return e;
  };
  // Where the sheet is too narrow for a table, it has smaller letters and may break code, and if need be also words after its first column.
  for (const table of document.querySelectorAll("article table:not(.fedlib *)"))
    for (const much of ["wide", "wider"]) if (table.offsetWidth > table.parentElement.clientWidth + 1) table.classList.add(much);
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
      const end = at(before, true), passed = end.y < 0.85 ? "p, ul, ol, div.math, h2, h3" : "p, ul, ol, div.math";
      if (at(figure).sheet === end.sheet || end.y > 0.9) return;
      let text = next(figure);
      while (text?.matches(passed) && !ends(text)) text = next(text);
      if (!text?.matches(passed) || text.textContent.startsWith("Predict")) return;
      const home = document.createComment("");
      figure.replaceWith(home);
      text.after(figure);
      if (at(text).sheet !== end.sheet) return home.replaceWith(figure);
      home.remove();
      before = text;
    }
  };
  const figures = [...document.querySelectorAll("article .cell_output:has(figure)")].map((figure) => [figure, figure.closest("div.cell")]);
  // A few lines do not take a sheet of their own, if the others have room for them.
  for (const [height, measure] of [["", ""], [1.43, "146mm"], [1.41, "150mm"], [1.39, "154mm"], [1.37, "158mm"], ["", ""]]) {
    article.style.lineHeight = height;
    article.style.setProperty("--measure", measure);
    for (const [figure, cell] of figures) cell.after(figure);
    for (const [figure] of figures) fill(figure);
    if (article.scrollWidth < 1.5 * wide || at(article.lastElementChild, true).y > 0.15) break;
  }
  columns.remove();
}
