async ([here, there]) => {
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
  for (const a of document.links)
    if (!a.getAttribute("href").startsWith("#")) a.href = a.href.replace(here, there);
}
