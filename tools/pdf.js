async ([here, there, book]) => {
  await Promise.all([document.fonts.ready, window.MathJax?.startup?.promise]);
  for (const hint of document.querySelectorAll("article details:not(.hide, .fedlib *)")) hint.open = true;
  let last = "";
  for (const e of document.querySelectorAll("#exercises :is(strong, details:not(.hide))")) {
    last = e.textContent.match(/^Exercise (\d)/)?.[1] ?? last;
    if (e.matches("details")) {
      e.querySelector(".sd-summary-text, summary").textContent = `Hint ${last}`;
      e.closest("#exercises").append(e);
    }
  }
  // The first sheet has the name of the book at its head, the others that of the page.
  const head = (words) => `@top-left { content: ${JSON.stringify(words)}; width: 100%; margin-bottom: 6mm; padding-bottom: 1.5mm;
    vertical-align: bottom; border-bottom: 0.5pt solid #999; font: 9pt "Book Sans", sans-serif; color: #555; }`;
  const style = document.head.appendChild(document.createElement("style"));
  if (document.querySelector("article")) style.textContent = `@page { ${head(document.title.split(" \u2014 ")[0])} } @page :first { ${head(book)} }`;
  for (const a of document.links)
    if (!a.getAttribute("href").startsWith("#")) a.href = a.href.replace(here, there);
}
