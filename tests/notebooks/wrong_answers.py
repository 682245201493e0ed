"""Wrong answers that students really give, for each exercise; its check must refuse them.

One is a text of the right solution, what stands there instead, and words that the hint must hold. An empty text stands
for the whole solution.
"""

WRONG = {
    "01_fedavg": {
        "1": [
            ("drift in one step", '"the same"', '"another"', "the weighted mean of the gradients"),
            ("in other words", '"the same"', '"equal"', "answer must be"),
            ("no text", '"the same"', "True", "answer must be"),
        ],
        "2": [
            ("second layer forgotten", "[:, order]", "", "reads units by place"),
            ("rows, not columns", '["dense2.weight"][:, order]', '["dense2.weight"][order]', "64 columns units"),
            ("inverse order of the columns", "[:, order]", "[:, order.argsort()]", "column i: unit order[i]"),
            ("bias forgotten", 'params["dense1.bias"][order]', 'params["dense1.bias"]', "takes its bias along"),
            (
                "inverse order",
                'params["dense1.weight"][order]',
                'params["dense1.weight"][order.argsort()]',
                "comes to place i",
            ),
            ("in place", "    return {", '    params["dense1.weight"] += 1\n    return {', "leave params as it is"),
        ],
        "3": [
            ("rows instead of columns", "_, order =", "order, _ =", "nothing moves"),
            ("networks exchanged", "units(first), units(second)", "units(second), units(first)", "the other way round"),
            ("largest sum of costs", "(costs)", "(costs, maximize=True)", "not the closest units"),
            (
                "lengths of the units only",
                "torch.cdist(units(first), units(second))",
                "(units(first).norm(dim=1)[:, None] * units(second).norm(dim=1))",
                "not the closest units",
            ),
            ("one unit for all", "torch.tensor(order)", "torch.tensor(order * 0)", "must come once"),
        ],
        "4": [
            ("no lie", "said = 1000 * 1000", "said = 1000", "the honest share"),
            ("one each", "100 * others", "others", "100 examples"),
            (
                "the mean of what is said",
                "said / (said + 100 * others)",
                "said / (100 * others + 1e-9)",
                "between 0 and 1",
            ),
        ],
    },
    "02_clients_differ": {
        "1": [
            ("new names are skew", "(False, False, True)", "(True, False, True)", "as frequent as before"),
            ("new names for all", "(False, False, True)", "(False, True, True)", "agree with each other"),
            ("half of them", "(False, False, True)", "(False, False, False)", "pull against the other half"),
            ("one of three", "(False, False, True)", "True", "three of True and False"),
        ],
        "2": [
            ("0 log 0", "np.where(p > 0, p, 1)", "p", "adds nothing"),
            ("the entropy itself", "np.exp(-(p * logs).sum(1))", "-(p * logs).sum(1)", "not the entropy"),
            ("no minus", "np.exp(-(p", "np.exp((p", "has a minus"),
            ("shares of everybody", "counts.sum(1, keepdims=True)", "counts.sum()", "add up to 1 for each client"),
            ("one number", ".sum(1))\n", ".sum())\n", "one number for each client"),
        ],
        "3": [
            ("first epoch, not last", "epochs)[-1]", "epochs)[0]", "not the first"),
            ("upside down", "apart / moved", "moved / apart", "not the other way"),
            ("one epoch more", "epochs)[-1]", "epochs + 1)[-1]", "for alpha = 1"),
        ],
        "4": [
            (
                "clients count alike",
                "votes.get(name, 0) + share",
                "votes.get(name, 0) + 1 / len(shares)",
                "use their shares",
            ),
            (
                "the largest group only",
                "votes.get(name, 0) + share",
                "max(votes.get(name, 0), share)",
                "count together",
            ),
            ("the model of one group", "max(votes.values())", "list(votes.values())[-1]", "each digit anew"),
        ],
    },
    "03_taming_drift": {
        "1": [
            ("momentum moves the end", "(False, True, True)", "(True, True, True)", "know nothing of beta"),
            ("the band does not", "(False, True, True)", "(False, False, True)", "where the clients stop"),
            ("SCAFFOLD corrects at once", "(False, True, True)", "(False, True, False)", "begin at zero"),
            ("one of three", "(False, True, True)", "False", "three of True and False"),
        ],
        "2": [
            ("no half", "mu / 2", "mu", "half of mu"),
            (
                "length, not its square",
                "((p - start[name]) ** 2).sum()",
                "(p - start[name]).norm()",
                "add up the squares",
            ),
            ("mean of the squares", "** 2).sum()", "** 2).mean()", "no means"),
            ("the start forgotten", "(p - start[name])", "p", "does not pull"),
        ],
        "3": [
            ("the other way", "mean - theta", "theta - mean", "towards the mean"),
            ("as FedAvgM", "(1 - beta1) * delta", "delta", "1 - beta1 of Delta"),
            ("no square", "delta**2", "delta.abs()", "square of Delta"),
            ("tau below the root", "(v.sqrt() + tau)", "(v + tau).sqrt()", "then tau"),
        ],
        "4": [
            ("best point of the mean loss", "1 - (1 - lr * curvature) ** steps", "curvature", "arrives at its own"),
            ("mean of the optima", "1 - (1 - lr * curvature) ** steps", "1", "4 to 1"),
            ("one step too many", "** steps for", "** (steps + 1) for", "gradient descent on the mean loss"),
        ],
    },
    "04_personal_models": {
        "1": [
            ("from FedAvg's end", '"alone"', '"fine-tuning"', "where w *started*"),
            ("no rope, no difference", '"alone"', '"FedAvg"', "nobody takes a mean"),
            ("v_k is sent", "False", "True", "v_k is never sent"),
            ("one of two", '("alone", False)', '"alone"', "a pair"),
        ],
        "2": [
            (
                "before minus after",
                "after.mean() - before.mean()",
                "before.mean() - after.mean()",
                "after minus before",
            ),
            (
                "the same clients",
                "worst_tenth(after) - worst_tenth(before)",
                "(after - before)[before.argsort()[: len(before) // 10]].mean()",
                "other clients",
            ),
            ("the worst one", "worst_tenth(after) - worst_tenth(before)", "after.min() - before.min()", "are two"),
            ("gains counted", "before - after > margin", "after - before > margin", "that lost"),
            ("no margin", "before - after > margin", "before > after", "within the margin"),
        ],
        "3": [
            (
                "representation first",
                "((2, head_epochs), (0, epochs))",
                "((0, epochs), (2, head_epochs))",
                "head is trained first",
            ),
            ("all layers at once", "own.requires_grad_(False)", "pass", "head is trained first"),
            ("no head", "((2, head_epochs), (0, epochs))", "((0, epochs),)", "head has not been trained"),
            ("the head only", "((2, head_epochs), (0, epochs))", "((2, head_epochs),)", "representation has not been"),
            ("epochs of the head twice", "key, passes)", "key, head_epochs)", "for `epochs`"),
            ("in place", "own = copy.deepcopy(network)", "own = network", "not of what was given"),
        ],
        "4": [
            ("upside down", "sigma2 / (n * tau2)", "n * tau2 / sigma2", "needs w less"),
            ("clients do not differ", "sigma2 / (n * tau2)", "sigma2 / n", "the more clients differ"),
            ("no noise", "sigma2 / (n * tau2)", "1 / (n * tau2)", "stronger pull"),
            ("a root", "sigma2 / (n * tau2)", "(sigma2 / (n * tau2)) ** 0.5", "another lambda"),
        ],
    },
    "05_cfl_geometry": {
        "1": [
            ("angles decide", '("no", "yes"', '("yes", "yes"', "nobody pulls"),
            ("one model for all", '("no", "yes"', '("no", "no"', "pull against each other"),
            ("a cut while it moves", '"wait"', '"yes"', "train on"),
            ("noise believed", '"unclear"', '"yes"', "noise alone"),
            ("one word", '("no", "yes", "wait", "unclear")', '"no"', "four words"),
        ],
        "2": [
            ("curvature forgotten", "a1 * h1, (1 - a1) * h2", "a1, 1 - a1", "more say"),
            ("gradients with a sign", "h1 * abs(theta - b1)", "h1 * (theta - b1)", "no sign"),
            ("distances, not gradients", "h1 * abs(theta - b1)", "abs(theta - b1)", "h times the distance"),
        ],
        "3": [
            ("least similar first", "np.argsort(-alpha", "np.argsort(alpha", "is possible"),
            ("joins clients, not groups", "group[group == group[second[pair]]]", "group[second[pair]]", ""),
            ("the wrong way round", "group != group[0]", "group == group[0]", "is 0"),
            ("to the end", "== 2", "== 1", "two groups are left"),
        ],
        "4": [
            ("upside down", "V / S2", "S2 / V", "a longer gradient needs fewer"),
            ("distance from one", "cosine / (1 - cosine)", "(1 - cosine) / cosine", "a higher cosine"),
            ("length, not its square", "V / S2 *", "V / S2**0.5 *", "your n gives"),
        ],
    },
    "06_cfl": {
        "1": [
            ("orthogonal", "-1 / 4", "0", "do not add up to nothing"),
            ("opposite", "-1 / 4", "-1", "come in twos"),
            ("all 25 products", "-1 / 4", "-1 / 5", "20 are left"),
            ("sign", "-1 / 4", "1 / 4", "0 = 5 + 20 times"),
            ("a sum, no mean", "-1 / 4", "-5", "between -1 and 1"),
        ],
        "2": [
            (
                "rows, not clients",
                "both = list(zip(members, side, strict=True))",
                "both = list(enumerate(side))",
                "rows of the matrix",
            ),
            (
                "sides exchanged",
                "list(zip(members, side, strict=True))",
                "[(k, 1 - s) for k, s in zip(members, side)]",
                "first the clients of side 0",
            ),
        ],
        "3": [
            ("without the true one", "gains[0]))", "gains[0])[1:])", "the share is above 0"),
            ("the other way round", ">= gains[0]", "<= gains[0]", "not at most"),
            ("first halves exchanged too", "[halves[0], halves[1][order]]", "[halves[0][order], halves[1][order]]", ""),
        ],
        "4": [
            (
                "the wrong way round",
                "parted.objective < threshold",
                "parted.objective > threshold",
                "nothing to cut",
            ),
            ("one cut only", "waiting += [members[side].tolist(), members[~side].tolist()]", "pass", "both parts"),
            ("rows, not clients", "found[members[side]]", "found[: len(side)][side]", ""),
        ],
    },
    "07_clustering_rivals": {
        "1": [
            ("all of them", "used = 1", "used = GROUPS", "no client has a reason"),
            ("one more than one", "used = 1", "used = 2", "a model that has trained"),
            ("none", "used = 1", "used = 0", "every client takes a model"),
        ],
        "2": [
            ("pi, not its logarithm", "pi.log()", "pi", "pi.log(), not pi"),
            ("pi forgotten", "(pi.log() - losses)", "(-losses)", "with equal losses q is pi"),
            ("softmax over examples", ".softmax(1)", ".softmax(0)", "sum to 1"),
            ("sign", "pi.log() - losses", "pi.log() + losses", "a small loss makes"),
            ("mean over models", "q.mean(0)", "q.mean(1)", "a mean over the examples"),
            (
                "overflow",
                "(pi.log() - losses).softmax(1)",
                "pi * (-losses).exp() / (pi * (-losses).exp()).sum(1, keepdim=True)",
                "the same loss more",
            ),
            ("pi stays", "q.mean(0)", "pi", "the new pi is the mean of q"),
        ],
        "3": [
            ("radians", ".rad2deg()", "", "in degrees"),
            ("smallest singular value", "(a @ b.T)[0]", "(a @ b.T)[-1]", "the planes share a line"),
            ("first vectors only", "(a @ b.T)[0]", "(a[:1] @ b[:1].T)[0]", "the planes share a line"),
            ("not clamped", ".clamp(max=1)", "", "clamp"),
            ("columns for rows", "a @ b.T", "a.T @ b", ""),
        ],
        "4": [
            (
                "k-means too",
                '{"IFCA", "FedEM"}',
                '{"IFCA", "FedEM", "k-means on updates"}',
                "the server groups updates",
            ),
            ("PACFL sends no model", '{"IFCA", "FedEM"}', '{"IFCA", "FedEM", "PACFL"}', "compares the vectors"),
            ("only FedEM", '{"IFCA", "FedEM"}', '{"FedEM"}', "chooses itself"),
            ("only IFCA", '{"IFCA", "FedEM"}', '{"IFCA"}', "pi stays at home"),
            ("nobody blind", '{"PACFL"}', "set()", "a code is a label"),
            ("updates blind too", '{"PACFL"}', '{"PACFL", "CFL"}', "other labels change losses"),
        ],
    },
    "08_fedcg_domains": {
        "1": [
            ("the student's answer", "upside_down / (upright + upside_down)", "0.2", "student's answer"),
            ("shares of all forgotten", "0.8 * 0.2 / 0.8, 0.2 * 0.8 / 0.2", "0.8 * 0.2, 0.2 * 0.8", "divide"),
            ("the other domain", "upside_down / (upright", "1 - upside_down / (upright", "student's answer"),
            ("shares of all as own", "0.8 * 0.2 / 0.8, 0.2 * 0.8 / 0.2", "0.8 * 0.8, 0.2 * 0.2", "to sum 1"),
            ("in per cent", "upside_down / (upright", "100 * upside_down / (upright", "between 0 and 1"),
        ],
        "2": [
            ("sign", "target.log() - mean.log()", "mean.log() - target.log()", "sign"),
            ("temperature forgotten", "b + tau *", "b +", "tau is missing"),
            ("probabilities, not their logs", "target.log() - mean.log()", "target - mean", "logs"),
            ("mean before softmax", ".softmax(1).mean(0)", ".mean(0).softmax(0)", "softmax first"),
            ("softmax over samples", ".softmax(1).mean(0)", ".softmax(0).mean(0)", ""),
            ("a bias for each sample", ".softmax(1).mean(0)", ".softmax(1)", "one number for each domain"),
        ],
        "3": [
            ("classes with many samples too", "of_class == 1", "of_class > 0", "only their sum"),
            ("not rounded", ".round()", " - 1e-3", "no whole numbers"),
            ("mean over domains", "s1[:, y].sum(0)", "s1[:, y].mean(0)", "add up"),
            ("the likeliest domain only", "s1[:, y].sum(0)", "s1[n[:, y].argmax(), y]", "add up"),
            ("features without their class", "", "def unmask(n, s1):\n    return list(s1.sum(0))", "dictionary"),
        ],
        "4": [
            ("own shares, other places", "np.arange(len(t)) % D", "t", "equally often"),
            (
                "equal on average only",
                "draw.permutation(np.arange(len(t)) % D)",
                "draw.randint(0, D, len(t))",
                "equally",
            ),
            ("not at random", "draw.permutation(np.arange(len(t)) % D)", "np.arange(len(t)) % D", "random places"),
            ("no seed", "RandomState(seed)", "RandomState()", "same seed"),
        ],
    },
    "10_fedcg_graph": {
        "1": [
            ("ReLU lets it through", "(False, True, False)", "(True, True, False)", "ReLU lets no gradient through"),
            ("zero never learns", "(False, True, False)", "(False, False, False)", "without ReLU"),
            ("lambda does not matter", "(False, True, False)", "(False, True, True)", "multiplied by lambda"),
            ("one of three", "(False, True, False)", "False", "three of True and False"),
        ],
        "2": [
            ("no floor", ".clamp(min=1e-3 * mean)", "", "must not divide by zero"),
            ("mean over the diagonal too", "(n * (n - 1))", "(n * n)", "pairs of different domains"),
            ("rows not scaled", " / h.sum(1, keepdim=True)", "", "adds up to one"),
            ("beta exchanged", ".fill_diagonal_(beta)", ".fill_diagonal_(1 - beta)", "the diagonal is beta"),
            ("no case for equal modules", "if mean == 0:", "if mean < 0:", "if all modules are equal"),
        ],
        "3": [
            ("only what i keeps", "beta - (1 - beta) / (D - 1)", "beta", "subtract it"),
            ("spread over all", "(D - 1)", "D", "is left"),
            ("a half", "1 / D  #", "1 / 2  #", "solve for it"),
        ],
        "4": [
            ("forwards only", "keeps**2", "keeps", "in the gradient as well"),
            ("the mean shrinks too", "return 1.0", "return keeps", "does not change it"),
            ("spread over all", "(D - 1)", "D", "of the pace"),
            ("one factor", "return 1.0, keeps**2", "return keeps**2", "two factors"),
        ],
    },
    "11_different_columns": {
        "1": [
            (
                "FedAvg too",
                'columns = {"LG-FedAvg"',
                'columns = {"FedAvg", "LG-FedAvg"',
                "FedAvg averages first layers",
            ),
            (
                "no MMD there",
                'columns = {"LG-FedAvg", "LG-FedAvg + MMD"',
                'columns = {"LG-FedAvg"',
                "layers are private",
            ),
            ("FedProto forgotten", '"LG-FedAvg + MMD", "FedProto"}', '"LG-FedAvg + MMD"}', "no parameter at all"),
            ("LG-FedAvg at any depth", 'layers = {"FedProto"}', 'layers = {"FedProto", "LG-FedAvg"}', "is behind"),
            ("prices have no class", 'price = {"FedAvg"', 'price = {"FedProto", "FedAvg"', "whose mean embedding"),
            ("LG-FedAvg only", 'price = {"FedAvg", ', "price = {", "never look at a class"),
            ("a list", 'layers = {"FedProto"}', 'layers = ["FedProto"]', "sets of names"),
        ],
        "2": [
            ("rows with themselves", "if i != j]", "]", ""),
            (
                "the page's own",
                "if i != j]\n        return sum(k(A[i], A[j]) for i, j in pairs) / (n * (n - 1))",
                "]\n        return sum(k(A[i], A[j]) for i, j in pairs) / n**2",
                "still paired",
            ),
            ("divided by all pairs", "(n * (n - 1))", "n**2", "20 pairs"),
            ("once across", "2 * across", "across", "less twice"),
            ("distances added", "- 2 * across", "+ 2 * across", "mean within P"),
        ],
        "3": [
            (
                "shared layers move",
                "[W, b], lr",
                "[W, b, *(p.requires_grad_() for p in shared)], lr",
                "must stay as it is",
            ),
            ("first layer not cloned", "p.clone().requires_grad_()", "p.requires_grad_()", "must stay as it is"),
            ("weights only", "[W, b], lr", "[W], lr", "bias is trained too"),
            ("bias only", "[W, b], lr", "[b], lr", "W has not moved"),
            ("one step", "range(epochs)", "range(1)", "not the steps"),
            ("no ReLU", "torch.relu(x @ W.T + b)", "x @ W.T + b", "not the steps"),
        ],
        "4": [
            ("difference of means", "(n + 1) * after - n * before", "after - before", "not of sums"),
            ("n in both", "(n + 1) * after", "n * after", "a mean of n + 1"),
            ("n + 1 in both", "- n * before", "- (n + 1) * before", "a mean of n"),
            ("the mean itself", "(n + 1) * after - n * before", "after", "sum of 13"),
        ],
    },
    "12_who_helps_whom": {
        "1": [
            ("upside down", "(common**2 - 1)", "(1 - common**2)", "opposite"),
            ("no lengths", " / (common**2 + 1)", "", "product of the lengths"),
            ("the mean stays", "update - update.mean(0)", "update", "once the mean of all clients is gone"),
            ("mean of each client", "update.mean(0)", "update.mean(1, keepdim=True)", "opposite"),
            ("in place", "rest = update - update.mean(0)", "rest = update.sub_(update.mean(0))", "leave the updates"),
        ],
        "2": [
            (
                "both clients must be known",
                "torch.isin(test, train).any(1)",
                "torch.isin(test, train).all(1)",
                "a leak",
            ),
            ("tests on mixed pairs", "new.all(1)", "new.any(1)", "[2, 3] is no test pair"),
            ("trains on mixed pairs", "~new.any(1)", "~new.all(1)", "[2, 3] may not teach"),
            ("positions instead of masks", "~new.any(1), new.all(1)", "pairs[~new.any(1)], pairs[new.all(1)]", "masks"),
            ("sides exchanged", "~new.any(1), new.all(1)", "new.all(1), ~new.any(1)", "without any unseen client"),
        ],
        "3": [
            ("all are cores", ">= least", ">= 1", "ends are no cores"),
            ("oneself not counted", ">= least", "> least", "2 and 4 are cores"),
            ("strictly within", "(distance <= eps)", "(distance < eps)", "2 and 4 are cores"),
            ("cores joined without a chain", "chains(distance[core][:, core], eps)", "0", "and apart"),
            ("chains through all", "chains(distance[core][:, core], eps)", "chains(distance, eps)[core]", "and apart"),
        ],
        "4": [
            (
                "update keeps its length",
                '"length of the weights"',
                '"length of the update"',
                "the start keeps its order",
            ),
            ("cosine does not mind", "{", '{"cosine of the updates", ', "place by place"),
            ("a graph minds", ', "Siamese distance"', "", "averaged"),
            ("weights get longer", '"length of the weights", ', "", "the same squares"),
            ("a list", '{"length of the weights", "Siamese distance"}', '["Siamese distance"]', "a set"),
        ],
    },
    "15_choosing": {
        "1": [
            ("equal models stay equal", '"rises", "falls"', '"stays", "falls"', "ties become rare"),
            ("more images, less luck", '"rises", "falls"', '"falls", "falls"', "do not make equal models differ"),
            ("a gain hidden by luck", '"rises", "falls"', '"rises", "rises"', "who is better"),
            ("as many as before", '"rises", "falls"', '"rises", "stays"', "not equally good"),
            ("another word", '"rises", "falls"', '"grows", "falls"', "rises, falls or stays"),
            ("one word", '("rises", "falls")', '("rises",)', "two words"),
        ],
        "2": [
            ("best of validation", "test.max(1) - honest", "validation.max(1) - honest", "both scores are test"),
            ("one rate for all seeds", "validation.argmax(1)", "validation.mean(0).argmax()", "a rate of its own"),
            ("negative", "(test.max(1) - honest)", "(honest - test.max(1))", "the other way round"),
            ("sum over seeds", ".mean())", ".sum())", "each seed"),
        ],
        "3": [
            ("share of the right", "(right - alone)", "(alone - wrong)", "share of the *wrong*"),
            ("loss over gain", "(right - wrong)", "(alone - wrong)", "where the mean is"),
            ("without the wrong", "(right - wrong)", "right", "where the mean is"),
        ],
        "4": [
            ("columns by position", "[((t[names] -", "[((t.drop(columns=label).set_axis(names, axis=1) -", "by name"),
            (
                "each client by its own mean",
                "seen = pd.concat(train)[names]",
                "seen = train[0][names]",
                "training rows",
            ),
            ("test rows in the mean", "pd.concat(train)", "pd.concat(tables)", "training rows"),
            (
                "as listed, not sorted",
                'sorted(Path(folder).glob("*.csv"))',
                'sorted(Path(folder).glob("*.csv"))[::-1]',
                "one third of each",
            ),
            ("label among the features", " if name != label", "", "not a feature"),
            (
                "test and training exchanged",
                "stacked(train), stacked([t[2::3] for t in tables])",
                "stacked([t[2::3] for t in tables]), stacked(train)",
                "one third of each",
            ),
        ],
    },
    "16_scaling_out": {
        "1": [
            ("arithmetic forgotten", "answer = 67", "answer = 100", "the arithmetic stays"),
            ("one stack of all", "answer = 67", "answer = 200", "compare whole rounds"),
            ("a guess", "answer = 67", "answer = 10", "1,000 chunks against 10"),
            ("none of these", "answer = 67", "answer = 50", "one of 10, 67"),
        ],
        "2": [
            ("one norm for all clients", "squares.sqrt()", "squares.sum().sqrt().expand(len(squares))", "short"),
            ("short ones are made longer", "max=1.0", "max=1e9", "no factor above 1"),
            ("squared norm", "squares.sqrt()", "squares", "the root"),
            (
                "one norm for each tensor",
                "g.flatten(1).square().sum(1) for g in gradients",
                "gradients[1].square().sum(1) for _ in (1,)",
                "over all tensors",
            ),
            (
                "nothing over nothing",
                "(most / squares.sqrt())",
                "(squares / squares * most / squares.sqrt())",
                "may be zero",
            ),
        ],
        "3": [
            ("in turn, whatever their sizes", "loads.index(min(loads))", "k % processes", "largest client first"),
            ("smallest first", "-sizes[k]", "sizes[k]", "largest client first"),
            ("a client twice", "shares[least].append(k)", "shares[least] += [k, k]", "each client in one"),
            (
                "mean of means",
                "sum(p for p, _ in parts) / sum(n for _, n in parts)",
                "sum(p / n for p, n in parts) / len(parts)",
                "no mean of means",
            ),
            ("over processes", "sum(n for _, n in parts)", "len(parts)", "over all examples"),
        ],
        "4": [
            ("the largest with its sign", "update.abs().topk", "update.topk", "absolute value"),
            ("absolute values kept", "return update *", "return update.abs() *", "with their signs"),
            ("the smallest", "update.abs().topk", "(-update.abs()).topk", "absolute value"),
            (
                "none for a small share",
                "max(1, round(share * update.shape[1]))",
                "round(share * update.shape[1])",
                "at least one",
            ),
            ("too many", "round(share * update.shape[1])", "round(share * update.numel())", "EACH client"),
        ],
    },
    "14_privacy": {
        "1": [
            ("steps protect", '("yes", "yes"', '("yes", "no"', "each step adds a multiple"),
            ("sums give images away", '"no", "yes")', '"yes", "yes")', "4,000 images share"),
            ("an accomplice is no help", '"no", "yes")', '"no", "no")', "subtracts the accomplice"),
            ("one word", '("yes", "yes", "no", "yes")', '"yes"', "four words"),
        ],
        "2": [
            ("the sign of the step", "0.1 + update", "0.1 - update", "-lr times"),
            ("shares, not numbers", "(n * share)", "share", "multiply the shares"),
            ("the learning rate forgotten", " / lr", " / 0.1", "divide by the learning rate"),
            ("the answers forgotten", "0.1 + update", "update", "is -lr times"),
        ],
        "3": [
            ("a fixed noise", "brentq(lambda z: epsilon(z, rounds) - target, 0.1, 100)", "8.0", "promises only"),
            ("rounds forgotten", "epsilon(z, rounds) - target", "epsilon(z, 1) - target", "promises only"),
            ("twice as much", "    return brentq", "    return 2 * brentq", "more noise than"),
        ],
        "4": [
            ("sum of both", "second - first", "second + first", "still in it"),
            ("the other way round", "second - first", "first - second", "the second update minus the first"),
            ("whole numbers", " * UNIT", "", "minus the first"),
        ],
    },
}
