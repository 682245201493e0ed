// What a sheet of paper needs and a screen does not. `part` is the part of the book that the page belongs to.
async ([here, there, book, part]) => {
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

  // Code goes on on the next sheet between two statements: not after a line that opens a block, nor before an empty one.
  for (const line of document.querySelectorAll("article pre > .line")) {
    const next = line.nextElementSibling?.textContent.trim();
    if (next === "" || /^\s*(@|"""|(def|class|for|while|with|if|elif|else|try)\b.*:$)/.test(line.textContent.trimEnd())) line.style.breakAfter = "avoid";
  }

  // Columns of a sheet's size break as the sheets do, which shows where each part of the page will stand.
  const tall = (251 / 25.4) * 96, wide = (158 / 25.4) * 96;
  const columns = document.head.appendChild(document.createElement("style"));
  columns.textContent = "article { columns: 158mm; column-gap: 0; column-fill: auto; height: 251mm; width: 158mm; }";
  const place = (e, end) => {
    const from = article.getBoundingClientRect(), box = [...e.getClientRects()].at(end ? -1 : 0);
    return { sheet: Math.round((box.left - from.left) / wide - 0.3), y: (box[end ? "bottom" : "top"] - from.top) / tall };
  };
  const seen = (e, next) => {
    do e = e[next]; while (e && !e.getClientRects().length);
    return e;
  };
  // Where a figure leaves the foot of a sheet white, the text after it comes first, unless it goes on in a formula or code.
  const fill = (figure) => {
    const cell = figure.closest("div.cell");
    for (let text = seen(cell, "nextElementSibling"); text?.matches("p, ul, ol") && /[.?!]\)?$/.test(text.textContent.trim()); text = seen(cell, "nextElementSibling")) {
      let before = seen(figure, "previousElementSibling") ?? seen(cell, "previousElementSibling");
      while (before?.matches("h2, h3")) before = seen(before, "previousElementSibling") ?? seen(before.parentElement, "previousElementSibling");
      const end = before && place(before, true);
      if (!end || place(figure).sheet === end.sheet || end.y > 0.9) return;
      figure.before(text);
      if (place(text).sheet !== end.sheet) return cell.after(text);
    }
  };
  // A few lines do not take a sheet of their own, if the others have room for them.
  for (const [height, measure] of [["", ""], [1.43, "146mm"], [1.41, "150mm"], [1.39, "154mm"], ["", ""]]) {
    article.style.lineHeight = height;
    article.style.setProperty("--measure", measure);
    document.querySelectorAll("article .cell_output:has(figure)").forEach(fill);
    if (article.scrollWidth < 1.5 * wide || place(article.lastElementChild, true).y > 0.15) break;
  }
  columns.remove();
}
