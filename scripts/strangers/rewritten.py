"""Networks of transformers with random weights, and the mistakes of people who write parts of them again."""

import types

import torch
import torch.nn.functional as F
import transformers as hf
from torch import Tensor, nn

from subjects import Subject

EAGER = {"attn_implementation": "eager"}
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def imagenet(x: Tensor) -> Tensor:
    return (x - torch.tensor(MEAN).view(1, 3, 1, 1)) / torch.tensor(STD).view(1, 3, 1, 1)


class Rewritten(Subject):
    """A network of transformers, rewritten in places by `rewrite`."""

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.net = self.build()
        if slip:
            self.rewrite()

    def build(self) -> nn.Module:
        raise NotImplementedError

    def rewrite(self) -> None:
        """Change the code of a part."""


class SegFormer(Rewritten):
    """Segmentation: a pyramid of attention, a head of linear layers, labels' scores at full size."""

    SLIPS = {
        "fuse_order": "the head joins the stages from fine to coarse",
        "swish": "SiLU instead of GELU",
        "scaling": "attention is scaled by the whole width",
        "no_depthwise": "the MLP lacks its convolution",
        "no_preprocess": "pixels are not normalized",
        "running_mean": "batch norm's running mean is not loaded",
        "nearest": "the scores are enlarged by repetition",
    }

    def build(self) -> nn.Module:
        return hf.SegformerForSemanticSegmentation(
            hf.SegformerConfig(
                depths=[1, 1, 1, 1],
                hidden_sizes=[8, 16, 16, 32],
                num_attention_heads=[1, 2, 2, 4],
                decoder_hidden_size=16,
                num_labels=4,
                **EAGER,
            )
        )

    def rewrite(self) -> None:
        slip = self.slip
        for part in self.net.modules():
            kind = type(part).__name__
            if kind == "SegformerMixMLP" and slip == "swish":
                part.activation_fn = nn.SiLU()
            if kind == "SegformerDepthWiseConv" and slip == "no_depthwise":
                part.forward = lambda x, height, width: x
            if kind == "SegformerAttention" and slip == "scaling":
                part.scaling = (part.head_dim * part.num_attention_heads) ** -0.5
            if kind == "SegformerDecodeHead" and slip == "fuse_order":
                part.forward = types.MethodType(self.head, part)

    def head(self, part: nn.Module, states: list[Tensor], **_: object) -> Tensor:
        found = []
        for state, proj in zip(states, part.linear_projections, strict=True):
            height, width = state.shape[2:]
            y = proj(state).transpose(1, 2).reshape(1, -1, height, width)
            size = states[0].shape[2:]
            found.append(F.interpolate(y, size=size, mode="bilinear", align_corners=False))
        joined = torch.cat(found, 1)
        return part.classifier(part.activation(part.batch_norm(part.linear_fuse(joined))))

    def prepare(self) -> None:
        if self.slip == "running_mean":
            for part in self.net.modules():
                if isinstance(part, nn.BatchNorm2d):
                    part.running_mean.zero_()

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.rand(1, 3, 64, 64),)

    def forward(self, x: Tensor) -> Tensor:
        y = self.net(x if self.slip == "no_preprocess" else imagenet(x)).logits
        if self.slip == "nearest":
            return F.interpolate(y, scale_factor=4.0, mode="nearest")
        return F.interpolate(y, scale_factor=4.0, mode="bilinear", align_corners=False)


class Dpt(Rewritten):
    """Depth from one picture: features of four layers put together, the disparity as depth."""

    SLIPS = {
        "readout": "the class token comes first where it is joined",
        "corners": "fusion upsamples without align_corners",
        "unit_skip": "residual units lack their residual",
        "no_readout": "the class token is ignored",
        "flip": "transposed convolutions loaded flipped",
        "inverse": "the disparity is returned as the depth",
    }

    def build(self) -> nn.Module:
        return hf.DPTForDepthEstimation(
            hf.DPTConfig(
                hidden_size=32,
                num_hidden_layers=4,
                num_attention_heads=4,
                intermediate_size=48,
                image_size=32,
                patch_size=8,
                backbone_out_indices=[0, 1, 2, 3],
                neck_hidden_sizes=[8, 8, 16, 16],
                fusion_hidden_size=16,
                readout_type="project",
                **EAGER,
            )
        )

    def rewrite(self) -> None:
        for part in self.net.modules():
            kind = type(part).__name__
            if kind == "DPTPreActResidualLayer" and self.slip == "unit_skip":
                part.forward = types.MethodType(self.unit, part)
            if kind == "DPTFeatureFusionLayer" and self.slip == "corners":
                part.align_corners = False
            if kind == "DPTReassembleStage" and self.slip in ("readout", "no_readout"):
                part.forward = types.MethodType(self.reassemble, part)

    def unit(self, part: nn.Module, x: Tensor) -> Tensor:
        y = part.convolution1(F.relu(x))
        return part.convolution2(F.relu(y))

    def reassemble(self, part: nn.Module, states: list[Tensor], *_: object) -> list[Tensor]:
        found = []
        for i, state in enumerate(states):
            cls, x = state[:, :1], state[:, 1:]
            cls = cls.expand_as(x)
            if self.slip == "no_readout":
                cls = torch.zeros_like(x)
            joined = [cls, x] if self.slip == "readout" else [x, cls]
            y = part.readout_projects[i](torch.cat(joined, -1))
            found.append(part.layers[i](y.transpose(1, 2).reshape(1, 32, 4, 4)))
        return found

    def prepare(self) -> None:
        with torch.no_grad():
            self.net.head.head[4].bias += 2
            if self.slip == "flip":
                for part in self.net.modules():
                    if isinstance(part, nn.ConvTranspose2d):
                        part.weight.copy_(part.weight.flip(2, 3))

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.rand(1, 3, 32, 32),)

    def forward(self, x: Tensor) -> Tensor:
        y = self.net(x).predicted_depth
        return y if self.slip == "inverse" else 1 / (0.3 * y + 0.1)


class Yolos(Rewritten):
    """Detection by tokens: scores without background, boxes as corners in pixels."""

    SLIPS = {
        "first_tokens": "the head reads the tokens behind the class token",
        "top_left": "boxes are read as a corner and a size",
        "hw": "boxes are scaled by height and width exchanged",
        "sigmoid": "scores by sigmoid",
        "background": "the background is counted as a class",
        "value_bias": "the bias of values is not loaded",
        "pos_shift": "positions are shifted by one patch",
    }

    def build(self) -> nn.Module:
        return hf.YolosForObjectDetection(
            hf.YolosConfig(
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                intermediate_size=48,
                image_size=[32, 48],
                patch_size=8,
                num_detection_tokens=6,
                num_labels=5,
                **EAGER,
            )
        )

    def prepare(self) -> None:
        with torch.no_grad():
            if self.slip == "value_bias":
                for name, tensor in self.net.named_parameters():
                    if name.endswith(("value.bias", "v_proj.bias")):
                        tensor.zero_()
            if self.slip == "pos_shift":
                for name, tensor in self.net.named_parameters():
                    if name.endswith("embeddings.position_embeddings"):
                        tensor.copy_(tensor.roll(1, 1))

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.rand(1, 3, 32, 48) * 2 - 1,)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.net.vit(x).last_hidden_state
        hidden = hidden[:, 1:7] if self.slip == "first_tokens" else hidden[:, -6:]
        logits = self.net.class_labels_classifier(hidden)
        boxes = self.net.bbox_predictor(hidden).sigmoid()
        if self.slip == "sigmoid":
            scores = logits.sigmoid()[..., :-1]
        else:
            scores = logits.softmax(-1)
            scores = scores[..., 1:] if self.slip == "background" else scores[..., :-1]
        cx, cy, w, h = boxes.unbind(-1)
        if self.slip == "top_left":
            corners = torch.stack([cx, cy, cx + w, cy + h], -1)
        else:
            corners = torch.stack([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2], -1)
        size = [32.0, 48.0, 32.0, 48.0] if self.slip == "hw" else [48.0, 32.0, 48.0, 32.0]
        return scores, corners * torch.tensor(size)


class T5(Rewritten):
    """Encoder and decoder with relative positions; the decoder gets labels, shifted to the right."""

    SLIPS = {
        "scaled": "attention is scaled by the root of the width",
        "one_way": "the encoder's buckets look back only",
        "layer_norm": "the norm subtracts the mean",
        "no_head_scale": "the head is not scaled",
        "max_distance": "buckets for another longest distance",
        "no_shift": "labels are not shifted",
        "no_mask": "padding is attended to",
    }

    def build(self) -> nn.Module:
        return hf.T5ForConditionalGeneration(
            hf.T5Config(
                vocab_size=60,
                d_model=32,
                d_kv=8,
                d_ff=48,
                num_layers=2,
                num_heads=4,
                relative_attention_num_buckets=8,
                relative_attention_max_distance=16,
                decoder_start_token_id=0,
                scale_decoder_outputs=self.slip != "no_head_scale",
            )
        )

    def rewrite(self) -> None:
        def mean_too(part: nn.Module, x: Tensor) -> Tensor:
            return F.layer_norm(x, (32,), part.weight, None, part.variance_epsilon)

        for name, part in self.net.named_modules():
            kind = type(part).__name__
            if kind == "T5LayerNorm" and self.slip == "layer_norm":
                part.forward = types.MethodType(mean_too, part)
            if kind == "T5Attention" and self.slip == "scaled":
                part.scaling = 8**-0.5
            if kind == "T5Attention" and self.slip == "max_distance":
                part.relative_attention_max_distance = 128
            if kind == "T5Attention" and self.slip == "one_way" and "encoder" in name:
                part.is_decoder = True

    def inputs(self) -> tuple[Tensor, ...]:
        ids = torch.randint(1, 60, (2, 9))
        ids[1, 6:] = 0
        return ids, torch.randint(1, 60, (2, 5))

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        start = torch.zeros_like(labels[:, :1])
        fed = labels if self.slip == "no_shift" else torch.cat([start, labels[:, :-1]], 1)
        mask = torch.ones_like(ids) if self.slip == "no_mask" else (ids != 0).long()
        return self.net(
            input_ids=ids, attention_mask=mask, decoder_input_ids=fed, use_cache=False
        ).logits


class Mamba(Rewritten):
    """State space: the mixer is written again as a loop."""

    SLIPS = {
        "no_exp": "the state matrix is not exponentiated",
        "relu_step": "the step is a ReLU instead of softplus",
        "not_causal": "the convolution is cut at the wrong end",
        "no_skip": "the direct term is missing",
        "gate_first": "gate and state are exchanged where they are split",
        "input_output": "the input and the output matrix are exchanged",
        "euler_a": "the state decays linearly",
    }

    def build(self) -> nn.Module:
        return hf.MambaForCausalLM(
            hf.MambaConfig(
                vocab_size=60, hidden_size=16, state_size=4, num_hidden_layers=2, use_mambapy=False
            )
        )

    def rewrite(self) -> None:
        for part in self.net.modules():
            if type(part).__name__ == "MambaMixer":
                part.forward = types.MethodType(self.mix, part)

    def mix(self, part: nn.Module, x: Tensor, *_: object, **__: object) -> Tensor:
        slip, length = self.slip, x.shape[1]
        u, z = part.in_proj(x).transpose(1, 2).chunk(2, 1)
        if slip == "gate_first":
            u, z = z, u
        u = part.conv1d(u)
        u = F.silu(u[..., -length:] if slip == "not_causal" else u[..., :length])
        rank, states = part.time_step_rank, part.ssm_state_size
        step, b, c = part.x_proj(u.transpose(1, 2)).split([rank, states, states], -1)
        if slip == "input_output":
            b, c = c, b
        step = part.dt_proj(step).transpose(1, 2)
        step = F.relu(step) if slip == "relu_step" else F.softplus(step)
        a = -part.A_log if slip == "no_exp" else -part.A_log.exp()
        decay = step[..., None] * a[None, :, None]
        decay = 1 + decay if slip == "euler_a" else decay.exp()
        push = step[..., None] * b[:, None] * u[..., None]
        h, ys = torch.zeros_like(push[:, :, 0]), []
        for t in range(length):
            h = decay[:, :, t] * h + push[:, :, t]
            ys.append((h * c[:, None, t]).sum(-1))
        y = torch.stack(ys, -1)
        if slip != "no_skip":
            y = y + u * part.D[:, None]
        return part.out_proj((y * F.silu(z)).transpose(1, 2))

    def prepare(self) -> None:
        for name, tensor in self.net.named_parameters():
            if "x_proj" in name:
                tensor.data.mul_(8)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randint(1, 60, (2, 7)),)

    def forward(self, ids: Tensor) -> Tensor:
        return self.net(ids, use_cache=False).logits


class QwenMoe(Rewritten):
    """Mixture of experts with a shared one."""

    SLIPS = {
        "norm_topk": "the chosen weights are normalized",
        "no_shared_gate": "the shared expert is not gated",
        "up_gate": "the halves of the experts' first matrix are exchanged",
        "top1": "one expert instead of two",
        "theta": "rotary base of one million",
        "not_causal": "no causal mask",
        "sigmoid_router": "the router's weights by sigmoid",
    }

    def build(self) -> nn.Module:
        return hf.Qwen2MoeForCausalLM(
            hf.Qwen2MoeConfig(
                vocab_size=60,
                hidden_size=32,
                intermediate_size=48,
                moe_intermediate_size=24,
                shared_expert_intermediate_size=24,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                num_experts=4,
                num_experts_per_tok=1 if self.slip == "top1" else 2,
                norm_topk_prob=self.slip == "norm_topk",
                rope_theta=1e6 if self.slip == "theta" else 1e4,
                experts_implementation="batched_mm",
                **EAGER,
            )
        )

    def rewrite(self) -> None:
        def ungated(part: nn.Module, x: Tensor) -> Tensor:
            flat = x.view(-1, 32)
            _, weights, chosen = part.gate(flat)
            y = part.experts(flat, chosen, weights) + part.shared_expert(flat)
            return y.reshape(x.shape)

        def sigmoids(part: nn.Module, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            scores = F.linear(x.reshape(-1, 32), part.weight)
            top, index = scores.sigmoid().topk(2, -1)
            return scores, top, index

        for part in self.net.modules():
            kind = type(part).__name__
            if kind == "Qwen2MoeSparseMoeBlock" and self.slip == "no_shared_gate":
                part.forward = types.MethodType(ungated, part)
            if kind == "Qwen2MoeTopKRouter" and self.slip == "sigmoid_router":
                part.forward = types.MethodType(sigmoids, part)

    def prepare(self) -> None:
        if self.slip == "up_gate":
            for name, tensor in self.net.named_parameters():
                if name.endswith("gate_up_proj"):
                    tensor.data.copy_(tensor.data.roll(24, 1))

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randint(1, 60, (2, 8)),)

    def forward(self, ids: Tensor) -> Tensor:
        mask = torch.full((8, 8), torch.finfo(torch.float32).min).triu(1)
        if self.slip == "not_causal":
            mask = torch.zeros(8, 8)
        places = torch.arange(8)[None]
        mask = mask[None, None].expand(2, 1, 8, 8)
        return self.net(ids, attention_mask=mask, position_ids=places, use_cache=False).logits


class PatchTst(Rewritten):
    """Forecast of a time series in patches."""

    SLIPS = {
        "interleaved": "patches are taken at strides, not in runs",
        "pos_roll": "position vectors are shifted by one",
        "dim_scale": "attention is scaled by the whole width",
        "last_mean": "the series is centred by its last value",
    }

    def build(self) -> nn.Module:
        net = hf.PatchTSTForPrediction(
            hf.PatchTSTConfig(
                num_input_channels=3,
                context_length=32,
                patch_length=8,
                patch_stride=8,
                d_model=16,
                num_hidden_layers=2,
                num_attention_heads=4,
                ffn_dim=32,
                prediction_length=6,
                scaling=None,
                **EAGER,
            )
        )
        for part in net.modules():
            if type(part).__name__ == "PatchTSTPatchify":
                part.forward = self.patches
        return net

    def patches(self, x: Tensor) -> Tensor:
        x = x.transpose(1, 2)
        if self.slip == "interleaved":
            return x.reshape(2, 3, 8, 4).transpose(2, 3)
        return x.reshape(2, 3, 4, 8)

    def rewrite(self) -> None:
        for part in self.net.modules():
            if type(part).__name__ == "PatchTSTAttention" and self.slip == "dim_scale":
                part.scaling = 16**-0.5

    def prepare(self) -> None:
        if self.slip == "pos_roll":
            for name, tensor in self.net.named_parameters():
                if name.endswith("position_enc"):
                    tensor.data.copy_(tensor.data.roll(1, 0))

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randn(2, 32, 3).cumsum(1) + 4,)

    def forward(self, x: Tensor) -> Tensor:
        mean = x[:, -1:] if self.slip == "last_mean" else x.mean(1, keepdim=True)
        scale = (x.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()
        return self.net(past_values=(x - mean) / scale).prediction_outputs * scale + mean


class Clip(Rewritten):
    """Retrieval: pictures and texts in one space."""

    SLIPS = {
        "not_normalized": "embeddings of texts are not normalized",
        "log_scale": "the temperature is not exponentiated",
        "gelu": "GELU instead of its quick form",
        "last_token": "texts are read from the last token",
        "no_pre_norm": "the picture's first norm is missing",
        "mean_pool": "pictures are read from the mean of the patches",
        "transposed": "scores by text instead of by picture",
    }

    def build(self) -> nn.Module:
        act = "gelu" if self.slip == "gelu" else "quick_gelu"
        both = {
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "hidden_act": act,
        }
        text = both | {"vocab_size": 60, "max_position_embeddings": 16, "eos_token_id": 59}
        vision = both | {"image_size": 32, "patch_size": 8}
        return hf.CLIPModel(
            hf.CLIPConfig(text_config=text, vision_config=vision, projection_dim=16, **EAGER)
        )

    def rewrite(self) -> None:
        if self.slip == "no_pre_norm":
            for part in self.net.modules():
                if hasattr(part, "pre_layrnorm"):
                    part.pre_layrnorm.forward = lambda x: x

    def inputs(self) -> tuple[Tensor, ...]:
        ids = torch.randint(1, 58, (3, 9))
        for i, end in enumerate((5, 8, 6)):
            ids[i, end:] = 59
        return ids, torch.rand(3, 3, 32, 32)

    def forward(self, ids: Tensor, pixels: Tensor) -> Tensor:
        net = self.net
        seen = net.vision_model(pixel_values=imagenet(pixels))
        image = seen.pooler_output
        if self.slip == "mean_pool":
            image = net.vision_model.post_layernorm(seen.last_hidden_state[:, 1:].mean(1))
        read = net.text_model(input_ids=ids)
        text = read.last_hidden_state[:, -1] if self.slip == "last_token" else read.pooler_output
        image, text = net.visual_projection(image), net.text_projection(text)
        image = image / image.norm(dim=-1, keepdim=True)
        if self.slip != "not_normalized":
            text = text / text.norm(dim=-1, keepdim=True)
        scale = net.logit_scale if self.slip == "log_scale" else net.logit_scale.exp()
        y = image @ text.T * scale
        return y.T if self.slip == "transposed" else y


class ConvNext(Rewritten):
    """ConvNeXt V2 with its response norm."""

    SLIPS = {
        "grn_axis": "the response norm is taken over columns alone",
        "grn_l1": "the response is the mean of absolute values",
        "grn_residual": "the response norm lacks its residual",
        "gelu_tanh": "GELU by tanh",
        "norm_after": "the last norm comes before the pooling",
        "crop": "pixels are taken as bytes, not as shares",
    }

    def build(self) -> nn.Module:
        return hf.ConvNextV2ForImageClassification(
            hf.ConvNextV2Config(
                hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 2, 1], image_size=64, num_labels=6
            )
        )

    def rewrite(self) -> None:
        slip = self.slip

        def grn(part: nn.Module, x: Tensor) -> Tensor:
            g = x.abs().mean((1, 2), True) if slip == "grn_l1" else x.norm(dim=(1, 2), keepdim=True)
            if slip == "grn_axis":
                g = x.norm(dim=1, keepdim=True)
            y = part.weight * (x * g / (g.mean(-1, keepdim=True) + 1e-6)) + part.bias
            return y if slip == "grn_residual" else y + x

        for part in self.net.modules():
            kind = type(part).__name__
            if kind == "ConvNextV2GRN" and slip.startswith("grn"):
                part.forward = types.MethodType(grn, part)
            if kind == "ConvNextV2Layer" and slip == "gelu_tanh":
                part.act = nn.GELU(approximate="tanh")

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.rand(1, 3, 64, 64),)

    def forward(self, x: Tensor) -> Tensor:
        base = self.net.convnextv2
        x = imagenet(x * 255 if self.slip == "crop" else x)
        y = base.encoder(base.embeddings(x)).last_hidden_state
        if self.slip == "norm_after":
            y = base.layernorm(y.permute(0, 2, 3, 1)).mean((1, 2))
        else:
            y = base.layernorm(y.mean((2, 3)))
        return self.net.classifier(y)


class Deberta(Rewritten):
    """Disentangled attention; names of words."""

    SLIPS = {
        "content_only": "positions do not ask for contents",
        "scale_two": "scores are scaled for two parts, not three",
        "sign": "relative positions have the wrong sign",
        "buckets": "buckets for another longest distance",
        "no_rel_norm": "the relative positions are not normalized",
        "no_mask": "padding is attended to",
        "softmax_out": "scores instead of log shares",
    }

    def build(self) -> nn.Module:
        slip = self.slip
        return hf.DebertaV2ForTokenClassification(
            hf.DebertaV2Config(
                vocab_size=60,
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                intermediate_size=48,
                relative_attention=True,
                pos_att_type=["c2p"] if slip == "content_only" else ["p2c", "c2p"],
                position_buckets=8,
                max_position_embeddings=32,
                max_relative_positions=16 if slip == "buckets" else 32,
                share_att_key=True,
                norm_rel_ebd="none" if slip == "no_rel_norm" else "layer_norm",
                position_biased_input=False,
                num_labels=5,
            )
        )

    def rewrite(self) -> None:
        slip = self.slip
        for part in self.net.modules():
            if type(part).__name__ != "DisentangledSelfAttention":
                continue
            old = part.disentangled_attention_bias

            def bias(q, k, rel, emb, factor, old=old):
                rel = -rel if slip == "sign" else rel
                return old(q, k, rel, emb, 2 if slip == "scale_two" else factor)

            part.disentangled_attention_bias = bias

    def inputs(self) -> tuple[Tensor, ...]:
        ids = torch.randint(1, 60, (2, 12))
        ids[1, 8:] = 0
        return (ids,)

    def forward(self, ids: Tensor) -> Tensor:
        mask = torch.ones_like(ids) if self.slip == "no_mask" else (ids != 0).long()
        y = self.net(ids, attention_mask=mask).logits
        return y.softmax(-1) if self.slip == "softmax_out" else y.log_softmax(-1)


class Encodec(Rewritten):
    """The decoder of a sound codec."""

    SLIPS = {
        "zeros": "padding by zeros",
        "not_causal": "padding at both ends",
        "lstm_residual": "the recurrent part lacks its residual",
        "relu": "ReLU instead of ELU",
        "trim": "transposed convolutions are trimmed at both ends",
        "two_scales": "the scale of the sound is not applied",
    }

    def build(self) -> nn.Module:
        return hf.EncodecModel(
            hf.EncodecConfig(
                hidden_size=16,
                num_filters=4,
                upsampling_ratios=[4, 2],
                num_lstm_layers=1,
                codebook_size=16,
                codebook_dim=16,
                pad_mode="constant" if self.slip == "zeros" else "reflect",
                trim_right_ratio=0.5 if self.slip == "trim" else 1.0,
            )
        ).decoder

    def rewrite(self) -> None:
        def alone(part: nn.Module, x: Tensor) -> Tensor:
            return part.lstm(x.permute(2, 0, 1))[0].permute(1, 2, 0)

        for part in self.net.modules():
            kind = type(part).__name__
            if kind == "EncodecLSTM" and self.slip == "lstm_residual":
                part.forward = types.MethodType(alone, part)
            if kind == "ELU" and self.slip == "relu":
                part.forward = F.relu
            if kind == "EncodecConv1d" and self.slip == "not_causal":
                part.causal = False

    def inputs(self) -> tuple[Tensor, ...]:
        return torch.randn(1, 16, 10), torch.rand(1, 1) + 0.5

    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        y = self.net(x)
        return y / scale[..., None] if self.slip == "two_scales" else y * scale[..., None]


class Ast(Rewritten):
    """Sound classes from a spectrogram."""

    SLIPS = {
        "layout": "time and frequency are exchanged",
        "class_alone": "the distilled token is not averaged in",
        "half_std": "the spectrogram is divided by one deviation, not two",
        "tokens": "class and distilled token are exchanged",
        "log10": "logarithm to base ten",
        "last_norm": "the last norm is missing",
    }

    def build(self) -> nn.Module:
        return hf.ASTForAudioClassification(
            hf.ASTConfig(
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                intermediate_size=48,
                patch_size=8,
                frequency_stride=4,
                time_stride=4,
                max_length=24,
                num_mel_bins=24,
                num_labels=5,
                **EAGER,
            )
        )

    def rewrite(self) -> None:
        if self.slip == "last_norm":
            self.net.audio_spectrogram_transformer.layernorm.forward = lambda x: x

    def prepare(self) -> None:
        if self.slip == "tokens":
            e = self.net.audio_spectrogram_transformer.embeddings
            first = e.cls_token.data.clone()
            e.cls_token.data.copy_(e.distillation_token.data)
            e.distillation_token.data.copy_(first)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.rand(1, 24, 24) * 4,)

    def forward(self, x: Tensor) -> Tensor:
        x = (x + 1e-4).log10() if self.slip == "log10" else (x + 1e-4).log()
        x = (x + 4.2677393) / (4.5689974 if self.slip == "half_std" else 2 * 4.5689974)
        if self.slip == "layout":
            x = x.transpose(1, 2)
        if self.slip == "class_alone":
            y = self.net.audio_spectrogram_transformer(x).last_hidden_state[:, 0]
            return self.net.classifier(y)
        return self.net(x).logits


SUBJECTS = (
    QwenMoe, Dpt, SegFormer, Mamba, Clip, Deberta, T5, Encodec, PatchTst, Ast, ConvNext, Yolos,
)  # fmt: skip
