// The teacher's T: which share of the images falls to the largest domain, and what domains have to do with the truth.

function sentence(data, { kind, head, rate, at }) {
  const { domain, nmi } = data.runs[`${kind}|${head}|${rate}`][at], written = ([mean, half]) => half < 0.005 ? show(mean) : `${show(mean)} \u00b1 ${show(half)}`;
  const fate = domain.mean[0] > 0.95 ? "collapsed: nearly all images fall to one domain"
    : `in use: the largest of four domains has ${show(100 * domain.mean[0], 0)} of 100 images`;
  const seeds = domain.seeds.filter((v) => v > 0.95).length, n = domain.seeds.length;
  return `T = ${data.T[at]}, ${kind}, ${head}, rate ${rate}: ${fate} (${written(domain.mean)}; one domain only in ${seeds} of ${n} seeds). `
    + `NMI with the truth is ${written(nmi.mean)}; four domains at random have ${show(data.chance[`${kind}|${head}`])}.`;
}

function live(figure, data) {
  const state = { ...data.first }, says = make("output", { className: "says", "aria-live": "polite" });
  const groups = figure.querySelectorAll("[data-run]"), cursors = figure.querySelectorAll(".cursor");
  const draw = () => {
    const shown = `${state.kind}|${state.head}|${state.rate}`;
    for (const g of groups) g.style.display = g.dataset.run === shown ? "" : "none";
    cursors.forEach((c) => c.setAttribute("transform", `translate(${data.x[state.at]} 0)`));
    figure.querySelector("[data-chance]").setAttribute("transform", `translate(0 ${data.bottom - data.height * data.chance[`${state.kind}|${state.head}`]})`);
    says.textContent = sentence(data, state);
  };
  const set = (name) => (v) => { state[name] = v; draw(); };
  const pairs = (values) => values.map((v) => [v, v]);
  const kind = menu("Federation", pairs(data.kinds), state.kind, set("kind"));
  const at = slider("rounds to a new teacher, T", [0, data.T.length - 1, 1], state.at, set("at"), (v) => String(data.T[v]));
  const rate = slider("learning rate", [0, data.rates.length - 1, 1], data.rates.indexOf(state.rate), (v) => set("rate")(data.rates[v]), (v) => data.rates[v]);
  const head = choice("Head", pairs(data.heads), state.head, set("head"));
  figure.prepend(make("div", { className: "controls" }, kind.label, at.label, rate.label), make("div", { className: "controls" }, head.label), says);
  draw();
}

start("teacher", live);
