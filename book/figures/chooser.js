// The chooser: methods that may see and send so much, ordered by their accuracy in the reader's kind of federation.

/** Mean and half width of the 95 % interval over seeds, by the quantile of Student's t in the data. */
function interval(values, t) {
  const n = values.length, mean = values.reduce((a, b) => a + b, 0) / n;
  return [mean, n > 1 ? t * Math.sqrt(values.reduce((a, v) => a + (v - mean) ** 2, 0) / (n - 1) / n) : 0];
}

/** Names of the methods that are left, the most accurate first; and those of the rest that do not differ significantly from the first. */
function ordered(data, kind, sums, most) {
  const rows = data.grid[kind], mean = (m) => interval(rows[m].seeds, data.t)[0];
  const left = Object.keys(rows).filter((m) => rows[m].kB <= most && (!sums || data.sums.includes(m))).sort((a, b) => mean(b) - mean(a));
  const tied = left.slice(1).filter((m) => {
    const [gap, half] = interval(rows[left[0]].seeds.map((v, i) => v - rows[m].seeds[i]), data.t);
    return gap - half <= 0;
  });
  return { left, tied };
}

const bytes = (kB) => kB >= 1000 ? `${show(kB / 1000, 1)} MB` : `${show(kB, kB < 10 ? 1 : 0)} kB`;

function sentence(data, { kind, sums, most }, { left, tied }) {
  const of = Object.keys(data.grid[kind]).length, first = left[0], named = (m) => data.names[m] ?? m;
  const start = `${left.length} of ${of} methods remain that ${sums ? "need only sums and " : ""}send at most ${bytes(most)} per client and round. `;
  if (!first) return start;
  const [mean, half] = interval(data.grid[kind][first].seeds, data.t), n = data.grid[kind][first].seeds.length;
  const others = tied.slice(0, 4).map(named), more = tied.length - others.length;
  if (more) others.push(`${more} more`);
  return `${start}Where clients differ by ${data.words[kind] ?? kind}, ${named(first)} has the highest mean accuracy, ${show(mean)} \u00b1 ${show(half)}. `
    + (others.length ? `Over ${n} seeds, it does not differ significantly from ${list(others)}.` : left.length > 1 ? "It is significantly above all others." : "");
}

function live(figure, data) {
  const state = { kind: Object.keys(data.grid)[0], sums: false, most: 10 ** data.range[1] }, { left: x0, wide, top, row: high } = data.plot;
  const says = make("output", { className: "says", "aria-live": "polite" }), rows = figure.querySelectorAll("[data-method]");
  const draw = () => {
    const found = ordered(data, state.kind, state.sums, state.most), x = (v) => (x0 + wide * v).toFixed(1);
    for (const one of rows) {
      const at = found.left.indexOf(one.dataset.method);
      one.style.visibility = at < 0 ? "hidden" : "";
      if (at < 0) continue;
      const { seeds, kB } = data.grid[state.kind][one.dataset.method], [mean, half] = interval(seeds, data.t);
      one.setAttribute("transform", `translate(0 ${top + high * at})`);
      one.classList.toggle("best", at === 0 || found.tied.includes(one.dataset.method));
      one.querySelector(".span").setAttribute("d", `M${x(Math.max(0, mean - half))} 0H${x(Math.min(1, mean + half))}`);
      one.querySelector(".seeds").setAttribute("d", seeds.map((v) => `M${x(v)} 0h0`).join(""));
      one.querySelector("circle").setAttribute("cx", x(mean));
      const [score, cost] = one.querySelectorAll(".end");
      score.textContent = show(mean);
      cost.textContent = bytes(kB);
    }
    says.textContent = sentence(data, state, found);
  };
  const kind = menu("My clients differ by", Object.keys(data.grid).map((k) => [k, data.words[k] ? `${data.words[k]} (${k})` : k]), state.kind, (v) => { state.kind = v; draw(); });
  const sums = choice("The server may see", [[false, "each client's messages"], [true, "sums only"]], false, (v) => { state.sums = v; draw(); });
  const most = slider("sent per client and round, at most", [...data.range, 0.05], data.range[1], (v) => { state.most = 10 ** v; draw(); }, (v) => bytes(10 ** v));
  figure.prepend(make("div", { className: "controls" }, kind.label, most.label), make("div", { className: "controls" }, sums.label), says);
  if (!calm) rows.forEach((one) => { one.style.transition = "transform .4s"; });
  draw();
}

start("chooser", live);
