import math

import pytest
import torch
from torch.autograd import gradcheck

from nona_sklearn import MLPEmbedding, PeriodicEmbedding
from nona_sklearn.embedding import ACTIVATIONS, FeatureWeights


def test_no_hidden_layer_is_linear():
    embedding = MLPEmbedding(3, 2).double()
    x, y = torch.randn(2, 5, 3, dtype=torch.float64)
    zero = embedding(torch.zeros(1, 3, dtype=torch.float64))
    torch.testing.assert_close(embedding(x + y) - zero, embedding(x) + embedding(y) - 2 * zero)


def test_identity_activation_is_linear_too():
    embedding = MLPEmbedding(3, 2, (7, 5), "identity").double()
    x, y = torch.randn(2, 5, 3, dtype=torch.float64)
    zero = embedding(torch.zeros(1, 3, dtype=torch.float64))
    torch.testing.assert_close(embedding(x + y) - zero, embedding(x) + embedding(y) - 2 * zero)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_hidden_layers_have_the_given_sizes(activation):
    embedding = MLPEmbedding(3, 2, (7, 5), activation)
    shapes = [tuple(w.shape) for w in embedding.parameters() if w.ndim == 2]
    assert shapes == [(7, 3), (5, 7), (2, 5)]
    assert embedding(torch.randn(4, 3)).shape == (4, 2)


def test_unknown_activation():
    with pytest.raises(ValueError, match=r"activation must be one of .*, got 'gelu'"):
        MLPEmbedding(3, 2, activation="gelu")


def test_periodic_embedding_is_its_formula():
    embedding = PeriodicEmbedding(2, n_frequencies=3, width=4).double()
    x = torch.tensor([[0.3, -1.2]], dtype=torch.float64)
    expected = [x[0]]
    for feature in range(2):
        angle = 2 * math.pi * embedding.frequencies[feature, :, 0] * x[0, feature]
        waves = (angle + embedding.phases[feature, :, 0]).sin()
        mixed = embedding.weight[feature] @ waves + embedding.bias[feature, :, 0]
        expected.append(mixed)
    torch.testing.assert_close(embedding(x)[0], torch.cat(expected))
    assert embedding.out_features == 8


def test_periodic_embedding_treats_features_apart():
    embedding = PeriodicEmbedding(2, frequency_scale=1.0)
    one, other = embedding(torch.tensor([[0.5, 1.0], [0.5, 2.0]]))
    assert torch.equal(one[[0, *range(2, 9)]], other[[0, *range(2, 9)]])
    assert not torch.isclose(one[9:], other[9:]).any()


def test_periodic_gradients_match_finite_differences():
    embedding = PeriodicEmbedding(2, n_frequencies=2, width=3).double()
    x = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x, *_: embedding(x), (x, *embedding.parameters()))


def test_features_outside_columns_pass_by():
    embedding = PeriodicEmbedding(3, columns=[2], width=4)
    x = torch.randn(5, 3)
    output = embedding(x)
    assert output.shape == (5, embedding.out_features) == (5, 6)
    assert torch.equal(output[:, 4:], x[:, :2])
    alone = PeriodicEmbedding(1, width=4)
    columns = {name: getattr(alone, name) for name in ("widened", "passing")}
    alone.load_state_dict(embedding.state_dict() | columns)
    assert torch.equal(output[:, :4], alone(x[:, 2:]))


def test_feature_weights_are_positive_and_start_equal():
    embedding = FeatureWeights(3).double()
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    assert torch.equal(embedding(x), x)
    embedding.log_weight.data = torch.tensor([0.5, -9.0, 0.0]).double()
    assert (embedding.weight > 0).all()
    torch.testing.assert_close(embedding(x), x @ embedding.weight.diag())
    assert gradcheck(lambda x, *_: embedding(x), (x, *embedding.parameters()))


def test_batch_norm_normalises_hidden_layers():
    embedding = MLPEmbedding(3, 2, (5,), batch_norm=True)
    hidden = embedding.layers[1](embedding.layers[0](10 + 3 * torch.randn(200, 3)))
    torch.testing.assert_close(hidden.mean(0), torch.zeros(5), rtol=0, atol=1e-4)
    torch.testing.assert_close(hidden.std(0), torch.ones(5), rtol=0, atol=0.01)


def test_a_skip_connection_adds_a_linear_map_and_starts_near_it():
    embedding = MLPEmbedding(3, 2, (50,), skip_connection=True)
    x = torch.randn(200, 3)
    bent = embedding.layers(x) - embedding.layers[-1].bias
    torch.testing.assert_close(embedding(x), embedding.layers(x) + embedding.shortcut(x))
    assert bent.std() < 0.3 * embedding.shortcut(x).std()
