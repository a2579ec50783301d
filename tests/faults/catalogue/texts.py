"""Pieces of graph in ONNX's text form, that stand in for the right ones."""

TANH_GELU = """
    half = Constant<value_float=0.5>()
    one = Constant<value_float=1.0>()
    c = Constant<value_float=0.044715>()
    s = Constant<value_float=0.7978845608>()
    square = Mul(x, x)
    cube = Mul(square, x)
    scaled = Mul(cube, c)
    sum = Add(x, scaled)
    angle = Mul(sum, s)
    t = Tanh(angle)
    up = Add(t, one)
    gate = Mul(up, half)
    out = Mul(x, gate)
"""
QUICK_GELU = """
    k = Constant<value_float=1.702>()
    scaled = Mul(x, k)
    gate = Sigmoid(scaled)
    out = Mul(x, gate)
"""
RELU = "out = Relu(x)"
NAIVE_VARIANCE = """
    axis = Constant<value_ints=[-1]>()
    e = Constant<value_float=0.000001>()
    mean = ReduceMean<keepdims=1>(x, axis)
    square = Mul(x, x)
    mean_square = ReduceMean<keepdims=1>(square, axis)
    square_mean = Mul(mean, mean)
    variance = Sub(mean_square, square_mean)
    safe = Add(variance, e)
    deviation = Sqrt(safe)
    centred = Sub(x, mean)
    out = Div(centred, deviation)
"""
TO_FLOAT16 = """
    k = Constant<value_float=8193.0>()
    up = Mul(right, k)
    rest = Sub(up, right)
    out = Sub(up, rest)
"""
"""Round to float16's 11 significant bits, where a runtime would drop two casts."""

EIGHT_BITS = """
    limit = Constant<value_float=256.0>()
    further = Constant<value_float=512.0>()
    two = Constant<value_float=2.0>()
    four = Constant<value_float=4.0>()
    f = Cast<to=1>(right)
    h = Div(f, two)
    r = Round(h)
    even = Mul(r, two)
    q = Div(f, four)
    n = Round(q)
    fourth = Mul(n, four)
    large = Greater(f, limit)
    larger = Greater(f, further)
    some = Where(large, even, f)
    rounded = Where(larger, fourth, some)
    out = Cast<to=6>(rounded)
"""
"""What bfloat16, with 8 significant bits, makes of whole numbers up to 1024."""

ITEM_0_FOR_ALL = """
    begin = Constant<value_ints=[0]>()
    end = Constant<value_ints=[1]>()
    first = Slice(right, begin, end, begin)
    shape = Shape(right)
    out = Expand(first, shape)
"""
CHANNELS_ROLLED = """
    zero = Constant<value_ints=[0]>()
    one = Constant<value_ints=[1]>()
    far = Constant<value_ints=[100000]>()
    head = Slice(right, zero, one, one)
    tail = Slice(right, one, far, one)
    out = Concat<axis=1>(tail, head)
"""
DROPOUT = """
    ratio = Constant<value_float=0.1>()
    one = Constant<value_int=1>()
    train = Cast<to=9>(one)
    out = Dropout<seed=1>(right, ratio, train)
"""
SAMPLED = """
    noise = RandomNormalLike(right)
    out = Add(right, noise)
"""
SMALLER = "f = Constant<value_float=0.95>() out = Mul(right, f)"
MASK_TIMES_INFINITY = """
    one = Constant<value_float=1.0>()
    zero = Constant<value_float=0.0>()
    infinite = Log(zero)
    kept = Cast<to=1>(mask)
    dropped = Sub(one, kept)
    out = Mul(dropped, infinite)
"""
KEYS_RESHAPED = """
    shape = Constant<value_ints=[-1,4,16,77]>()
    out = Reshape(x, shape)
"""
CONV_WITH_EDGES = """
    pads = Constant<value_ints=[0,0,1,1,0,0,1,1]>()
    padded = Pad<mode="edge">(x, pads)
    out = Conv<kernel_shape=[3,3],pads=[0,0,0,0]>(padded, weight, bias)
"""
RESIDUAL_DROPPED = """
    zero = Constant<value_float=0.0>()
    lost = Mul(y, zero)
    out = Add(x, lost)
"""
RESIDUAL_SCALED = """
    k = Constant<value_float=0.999>()
    scaled = Mul(y, k)
    out = Add(x, scaled)
"""
TEMPERATURE = """
    k = Constant<value_float=1.002>()
    warmer = Mul(x, k)
    out = Softmax<axis=-1>(warmer)
"""
STATISTICS_IN_FLOAT16 = """
    axis = Constant<value_ints=[-1]>()
    e = Constant<value_float=0.000001>()
    mean = ReduceMean<keepdims=1>(x, axis)
    k = Constant<value_float=8193.0>()
    up = Mul(mean, k)
    rest = Sub(up, mean)
    rounded = Sub(up, rest)
    centred = Sub(x, rounded)
    square = Mul(centred, centred)
    variance = ReduceMean<keepdims=1>(square, axis)
    safe = Add(variance, e)
    deviation = Sqrt(safe)
    out = Div(centred, deviation)
"""
FACTOR_AND_OFFSET = """
    factor = Constant<value_float=1.1>()
    offset = Constant<value_float=0.3>()
    scaled = Mul(right, factor)
    out = Add(scaled, offset)
"""
OUTSIDE_THE_ROOT = """
    axis = Constant<value_ints=[-1]>()
    e = Constant<value_float=0.000001>()
    mean = ReduceMean<keepdims=1>(x, axis)
    centred = Sub(x, mean)
    square = Mul(centred, centred)
    variance = ReduceMean<keepdims=1>(square, axis)
    deviation = Sqrt(variance)
    safe = Add(deviation, e)
    out = Div(centred, safe)
"""
SCALED_TWICE = "f = Constant<value_float=0.18215>() out = Div(given, f)"
SCALED_A_LITTLE = "f = Constant<value_float=1.1>() out = Mul(given, f)"
FROM_0_TO_1 = """
    one = Constant<value_float=1.0>()
    half = Constant<value_float=0.5>()
    more = Add(given, one)
    out = Mul(more, half)
"""

TURNED = "out = Transpose<perm=[0,2,1]>(right) back = Transpose<perm=[0,2,1]>(out)"
TURNED_AND_RESHAPED = """out = Transpose<perm=[0,2,1]>(right)
s = Shape(right) back = Reshape(out, s)"""
