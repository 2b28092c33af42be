# Copyright 2026 The Lockstep Authors
# SPDX-License-Identifier: Apache-2.0

"""Writes optimizer_goldens.json and schedule_goldens.json: what PyTorch's optimizers, averages and
schedules do.

    python3 make_optimizer_goldens.py        # needs numpy and torch

Optimizers: parameters of odd shapes take 20 steps, in float32 and float64. The last parameter of
each run has no gradient in every third step. Gradients and parameters are drawn (philox.py), and
drawn alike by optimizers_parity_test.cc. Schedules: the learning rates (and momenta) of two groups
over STEPS steps.
"""

import math
import os
import sys
import warnings

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import golden_file  # noqa: E402
import philox  # noqa: E402

CONFIG = dict(shapes=[[1], [3, 5], [0], [], [67]], steps=20, seed=41)
STEPS = 48  # of schedules
GROUP_LRS = [0.5, 0.02]

# Kind and options, by the names of Lockstep's option structs. What is left out has its default.
OPTIMIZERS = {
    "sgd": ("Sgd", dict(lr=0.1)),
    "sgd_decay": ("Sgd", dict(lr=0.1, weight_decay=0.1)),
    "sgd_momentum": ("Sgd", dict(lr=0.05, momentum=0.9)),
    "sgd_dampening": ("Sgd", dict(lr=0.05, momentum=0.9, dampening=0.3, weight_decay=0.02)),
    "sgd_nesterov": ("Sgd", dict(lr=0.05, momentum=0.8, weight_decay=0.02, nesterov=True)),
    "sgd_maximize": ("Sgd", dict(lr=0.05, momentum=0.9, weight_decay=0.02, maximize=True)),
    "adam": ("Adam", dict(lr=0.01)),
    "adam_decay": ("Adam", dict(lr=0.01, beta1=0.8, beta2=0.95, epsilon=1e-6, weight_decay=0.1)),
    "adam_amsgrad": ("Adam", dict(lr=0.01, beta2=0.6, weight_decay=0.05, amsgrad=True)),
    "adam_maximize": ("Adam", dict(lr=0.01, beta1=0.3, weight_decay=0.05, maximize=True)),
    "adamw": ("AdamW", dict(lr=0.01)),
    "adamw_decay": ("AdamW", dict(lr=0.01, beta1=0.8, beta2=0.95, epsilon=1e-6, weight_decay=0.3)),
    "adamw_amsgrad": ("AdamW", dict(lr=0.01, beta2=0.6, amsgrad=True)),
    "adamw_maximize": ("AdamW", dict(lr=0.01, amsgrad=True, maximize=True)),
    "rmsprop": ("Rmsprop", dict(lr=0.01)),
    "rmsprop_momentum": ("Rmsprop", dict(lr=0.005, alpha=0.9, momentum=0.9)),
    "rmsprop_centered": ("Rmsprop", dict(lr=0.005, alpha=0.9, centered=True, epsilon=1e-2,
                                         weight_decay=0.1)),
    "rmsprop_all": ("Rmsprop", dict(lr=0.005, alpha=0.4, momentum=0.5, centered=True, epsilon=1e-2,
                                    weight_decay=0.1, maximize=True)),
    "adagrad": ("Adagrad", dict(lr=0.1)),
    "adagrad_all": ("Adagrad", dict(lr=0.1, lr_decay=0.2, weight_decay=0.1, epsilon=1e-4,
                                    initial_accumulator_value=0.3, maximize=True)),
}

CLASSES = dict(Sgd=torch.optim.SGD, Adam=torch.optim.Adam, AdamW=torch.optim.AdamW,
               Rmsprop=torch.optim.RMSprop, Adagrad=torch.optim.Adagrad)


def make_optimizer(kind, parameters, options):
    names = dict(options)
    if "epsilon" in names:
        names["eps"] = names.pop("epsilon")
    if kind in ("Adam", "AdamW"):
        names["betas"] = (names.pop("beta1", 0.9), names.pop("beta2", 0.999))
    return CLASSES[kind](parameters, foreach=False, **names)


def values(tensors, dtype):
    digits = 17 if dtype == torch.float64 else 9
    return [float(f"{v:.{digits - 1}e}") for t in tensors for v in t.detach().reshape(-1).tolist()]


def train(kind, options, dtype):
    """The parameters after all steps, one after the other, and their averages of decay 0.9."""
    generator = philox.Generator(CONFIG["seed"])

    def draw(shape):
        return torch.from_numpy(generator.normal(tuple(shape))).to(dtype)

    parameters = [torch.nn.Parameter(draw(shape)) for shape in CONFIG["shapes"]]
    optimizer = make_optimizer(kind, parameters, options)
    module = torch.nn.Module()
    for i, parameter in enumerate(parameters):
        module.register_parameter(f"p{i}", parameter)
    averaged = torch.optim.swa_utils.AveragedModel(
        module, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    for step in range(CONFIG["steps"]):
        for i, parameter in enumerate(parameters):
            gradient = draw(parameter.shape)
            last = i + 1 == len(parameters)
            parameter.grad = None if last and step % 3 == 1 else gradient
        optimizer.step()
        averaged.update_parameters(module)
    result = dict(parameters=values(parameters, dtype))
    if kind == "Sgd":  # Averages do not depend on the kind; one is enough.
        result["averages"] = values(averaged.module.parameters(), dtype)
    return result


def schedules():
    """Name to (what makes it, kind of optimizer)."""
    s = torch.optim.lr_scheduler
    one_cycle = dict(max_lr=[1.0, 0.3], total_steps=STEPS)
    return {
        "step": (lambda o: s.StepLR(o, 7, gamma=0.6), "Sgd"),
        "multi_step": (lambda o: s.MultiStepLR(o, [5, 6, 30], gamma=0.3), "Sgd"),
        "exponential": (lambda o: s.ExponentialLR(o, 0.93), "Sgd"),
        "constant": (lambda o: s.ConstantLR(o, factor=0.25, total_iters=9), "Sgd"),
        "linear": (lambda o: s.LinearLR(o), "Sgd"),
        "linear_down": (lambda o: s.LinearLR(o, start_factor=0.9, end_factor=0.05, total_iters=31),
                        "Sgd"),
        "lambda": (lambda o: s.LambdaLR(o, [lambda t: 0.95**t, lambda t: 1 / (1 + t)]), "Sgd"),
        "cosine": (lambda o: s.CosineAnnealingLR(o, 20), "Sgd"),
        "cosine_floor": (lambda o: s.CosineAnnealingLR(o, 60, eta_min=0.01), "Sgd"),
        "restarts": (lambda o: s.CosineAnnealingWarmRestarts(o, 10, eta_min=0.001), "Sgd"),
        "restarts_longer": (lambda o: s.CosineAnnealingWarmRestarts(o, 5, T_mult=2), "Sgd"),
        "one_cycle": (lambda o: s.OneCycleLR(o, **one_cycle), "Sgd"),
        "one_cycle_adam": (lambda o: s.OneCycleLR(o, **one_cycle), "Adam"),
        "one_cycle_linear": (lambda o: s.OneCycleLR(o, anneal_strategy="linear", pct_start=0.4,
                                                    div_factor=10.0, final_div_factor=100.0,
                                                    base_momentum=0.7, max_momentum=0.9,
                                                    **one_cycle), "Rmsprop"),
        "one_cycle_three": (lambda o: s.OneCycleLR(o, three_phase=True, **one_cycle), "Sgd"),
        "one_cycle_three_linear": (lambda o: s.OneCycleLR(o, three_phase=True, cycle_momentum=False,
                                                          anneal_strategy="linear", **one_cycle),
                                   "Adagrad"),
        "sequential": (lambda o: s.SequentialLR(o, [s.LinearLR(o, 0.1, total_iters=10),
                                                    s.CosineAnnealingLR(o, 30),
                                                    s.ExponentialLR(o, 0.9)], [10, 40]), "Sgd"),
        "chained": (lambda o: s.ChainedScheduler([s.LinearLR(o, 0.2, total_iters=8),
                                                  s.ExponentialLR(o, 0.97),
                                                  s.MultiStepLR(o, [20, 33], 0.5)], o), "Sgd"),
    }


LOSSES = [5.0, 4.0, 4.0, 3.9999, 3.999, 3.5, 3.6, 3.7, 3.5, 3.5, 3.4, math.nan, 3.41, 3.39, 3.42,
          3.43, 3.40, 3.39, 3.38, 3.385, 3.39, 3.3, 3.4, 3.4, 3.4, 3.4, 3.4, 3.4, 3.2, 3.3, 3.3, 3.3,
          3.3, 3.3, 3.3, 3.3, 3.3, 3.3, 3.3, 3.3, 3.3, 3.3, 3.3, 3.3]

PLATEAUS = {
    "defaults": dict(),
    "impatient": dict(factor=0.5, patience=1),
    "cooldown": dict(factor=0.3, patience=0, cooldown=3),
    "absolute": dict(factor=0.5, patience=2, threshold=0.05, threshold_mode="abs"),
    "max": dict(mode="max", factor=0.5, patience=3, threshold=0.01),
    "max_absolute": dict(mode="max", factor=0.7, patience=2, threshold=0.1, threshold_mode="abs"),
    "floors": dict(factor=0.2, patience=0, min_lr=[0.05, 0.01]),
    "epsilon": dict(factor=0.5, patience=0, epsilon=0.004),
}


def groups(kind):
    parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in GROUP_LRS]
    return CLASSES[kind]([dict(params=[p], lr=lr) for p, lr in zip(parameters, GROUP_LRS)])


def momentum(group):
    return group["betas"][0] if "betas" in group else group.get("momentum", 0.0)


def run_schedule(make, kind):
    optimizer = groups(kind)
    schedule = make(optimizer)
    rates, momenta = [], []
    for step in range(STEPS):
        rates.append([g["lr"] for g in optimizer.param_groups])
        momenta.append([momentum(g) for g in optimizer.param_groups])
        optimizer.step()
        if step + 1 < STEPS:
            schedule.step()
    result = dict(optimizer=kind, rates=[list(r) for r in zip(*rates)])
    if momenta[0] != momenta[1]:
        result["momenta"] = [list(m) for m in zip(*momenta)]
    return result


def run_plateau(options):
    optimizer = groups("Sgd")
    names = dict(options)
    if "epsilon" in names:
        names["eps"] = names.pop("epsilon")
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **names)
    rates = []
    for loss in LOSSES:
        schedule.step(6 - loss if options.get("mode") == "max" else loss)
        rates.append([g["lr"] for g in optimizer.param_groups])
    return dict(options=options, rates=[list(r) for r in zip(*rates)])


def main():
    warnings.simplefilter("ignore")
    runs = {}
    for name, (kind, options) in OPTIMIZERS.items():
        runs[name] = dict(kind=kind, options=options,
                          float32=train(kind, options, torch.float32),
                          float64=train(kind, options, torch.float64))
    golden_file.write(os.path.join(HERE, "optimizer_goldens.json"),
                      dict(torch=torch.__version__, config=CONFIG, runs=runs))
    # JSON has no NaN; null stands for it.
    losses = [None if math.isnan(loss) else loss for loss in LOSSES]
    golden_file.write(
        os.path.join(HERE, "schedule_goldens.json"),
        dict(torch=torch.__version__, lrs=GROUP_LRS, steps=STEPS,
             schedules={n: run_schedule(m, k) for n, (m, k) in schedules().items()},
             losses=losses, plateaus={n: run_plateau(o) for n, o in PLATEAUS.items()}))


if __name__ == "__main__":
    main()
