<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>scores</title><style>
:root { color-scheme: light dark; --ink: #16202b; --paper: #ffffff; --line: #d5dbe1; --soft: #f3f5f7; }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e8ed; --paper: #14181d; --line: #38414b; --soft: #1d232a; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 1100px; margin: 2rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .6rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; }
.scroll { overflow-x: auto; }
th, td { padding: .35rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } tr:last-child td { font-weight: 600; }
small.interval { display: block; opacity: .75; font-weight: 400; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(430px, 1fr)); gap: 1.4rem; }
figure { margin: 0; background: var(--soft); border: 1px solid var(--line); border-radius: 8px; padding: .8rem; }
figure svg { width: 100%; height: auto; color: var(--ink); } figcaption { font-size: .88rem; margin-top: .3rem; }
details { margin: .8rem 0; } pre { overflow-x: auto; background: var(--soft); padding: .8rem; border-radius: 6px; }
ul.notes { font-size: .85rem; opacity: .85; padding-left: 1.2rem; }
@media print { body { margin: 0; padding: 0; max-width: none; font-size: 12px; } details { display: none; }
  .scroll { overflow: visible; } table { font-size: .8rem; } th, td { padding: .2rem .4rem; white-space: normal; }
  h2 { break-after: avoid; } figure { break-inside: avoid; padding: .4rem; } .figures { display: block; }
  .figures figure { display: inline-block; width: 46%; margin: .5%; vertical-align: top; } }
@media (max-width: 500px) { .figures { grid-template-columns: 1fr; } }
</style></head><body><h1>scores</h1><h2>Error rates by kind of trial</h2><div class="scroll"><table><thead><tr><th></th><th>targets</th><th>non-targets</th><th>EER %</th><th>minDCF default</th><th>actDCF default</th><th>Cllr</th><th>minCllr</th></tr></thead><tbody><tr><td>IW</td><td>23</td><td>1,160</td><td>8.38</td><td>0.696</td><td>1.000</td><td>0.332</td><td>0.223</td></tr><tr><td>IC</td><td>23</td><td>301</td><td>9.21</td><td>0.870</td><td>1.000</td><td>0.381</td><td>0.262</td></tr><tr><td>TW</td><td>23</td><td>116</td><td>15.57</td><td>0.870</td><td>1.000</td><td>0.730</td><td>0.521</td></tr><tr><td>Total</td><td>23</td><td>1,577</td><td>9.34</td><td>0.870</td><td>1.000</td><td>0.370</td><td>0.267</td></tr></tbody></table></div><ul class="notes"><li>Every row is TC against the non-targets of that kind.</li><li>EER: where the convex hull of the ROC meets miss = false alarm.</li><li>minDCF, actDCF: divided by the best decision without a score; actDCF at Bayes&#x27; threshold for natural-log likelihood ratios.</li><li>DCF default (C_miss=1, C_fa=1, P_target=0.01), threshold 4.5951.</li><li>Cllr, minCllr: bits.</li><li>Total pools all non-target trials as they come; shares: IW 0.7356, IC 0.1909, TW 0.07356.</li></ul><details><summary>The table as markdown</summary><pre>| kind | targets | non-targets | EER % | minDCF default | actDCF default | Cllr | minCllr |
| :--- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| IW | 23 | 1160 | 8.38 | 0.6957 | 1.0000 | 0.3315 | 0.2234 |
| IC | 23 | 301 | 9.21 | 0.8696 | 1.0000 | 0.3810 | 0.2620 |
| TW | 23 | 116 | 15.57 | 0.8696 | 1.0000 | 0.7305 | 0.5212 |
| Total | 23 | 1577 | 9.34 | 0.8696 | 1.0000 | 0.3703 | 0.2673 |

- Every row is TC against the non-targets of that kind.
- EER: where the convex hull of the ROC meets miss = false alarm.
- minDCF, actDCF: divided by the best decision without a score; actDCF at Bayes&#x27; threshold for natural-log likelihood ratios.
- DCF default (C_miss=1, C_fa=1, P_target=0.01), threshold 4.5951.
- Cllr, minCllr: bits.
- Total pools all non-target trials as they come; shares: IW 0.7356, IC 0.1909, TW 0.07356.
</pre></details><details><summary>The table as latex</summary><pre>% Needs \usepackage{booktabs}.
% Every row is TC against the non-targets of that kind.
% EER: where the convex hull of the ROC meets miss = false alarm.
% minDCF, actDCF: divided by the best decision without a score; actDCF at Bayes&#x27; threshold for natural-log likelihood ratios.
% DCF default (C_miss=1, C_fa=1, P_target=0.01), threshold 4.5951.
% Cllr, minCllr: bits.
% Total pools all non-target trials as they come; shares: IW 0.7356, IC 0.1909, TW 0.07356.
\begin{tabular}{lrrrrrrr}
\toprule
kind &amp; targets &amp; non-targets &amp; EER \% &amp; minDCF default &amp; actDCF default &amp; Cllr &amp; minCllr \\
\midrule
IW &amp; 23 &amp; 1160 &amp; 8.38 &amp; 0.6957 &amp; 1.0000 &amp; 0.3315 &amp; 0.2234 \\
IC &amp; 23 &amp; 301 &amp; 9.21 &amp; 0.8696 &amp; 1.0000 &amp; 0.3810 &amp; 0.2620 \\
TW &amp; 23 &amp; 116 &amp; 15.57 &amp; 0.8696 &amp; 1.0000 &amp; 0.7305 &amp; 0.5212 \\
Total &amp; 23 &amp; 1577 &amp; 9.34 &amp; 0.8696 &amp; 1.0000 &amp; 0.3703 &amp; 0.2673 \\
\bottomrule
\end{tabular}
</pre></details><h2>Pictures</h2><div class="figures"><figure><svg xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 432 360" xmlns="http://www.w3.org/2000/svg" version="1.1">
 <metadata>
  <rdf:RDF xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:cc="http://creativecommons.org/ns#" xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
   <cc:Work>
    <dc:type rdf:resource="http://purl.org/dc/dcmitype/StillImage"/>
    <dc:format>image/svg+xml</dc:format>
   </cc:Work>
  </rdf:RDF>
 </metadata>
 <defs>
  <style type="text/css">*{stroke-linejoin: round; stroke-linecap: butt}</style>
 </defs>
 <g id="det-figure_1">
  <g id="det-patch_1">
   <path d="M 0 360 
L 432 360 
L 432 0 
L 0 0 
L 0 360 
z
" style="fill: none"/>
  </g>
  <g id="det-axes_1">
   <g id="det-patch_2">
    <path d="M 60.66538 325.998979 
L 371.33462 325.998979 
L 371.33462 15.329738 
L 60.66538 15.329738 
L 60.66538 325.998979 
z
" style="fill: none; opacity: 0"/>
   </g>
   <g id="det-matplotlib.axis_1">
    <g id="det-xtick_1">
     <g id="det-line2d_1">
      <path d="M 74.365917 325.998979 
L 74.365917 15.329738 
" clip-path="url(#det-p41e1e1f907)" style="fill: none; stroke: #b0b0b0; stroke-opacity: 0.25; stroke-width: 0.8; stroke-linecap: square"/>
     </g>
     <g id="det-line2d_2">
      <defs>
       <path id="det-m313f432fbe" d="M 0 0 
L 0 3.5 
" style="stroke: currentColor; stroke-width: 0.8"/>
      </defs>
      <g>
       <use xlink:href="#det-m313f432fbe" x="74.365917" y="325.998979" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="det-text_1">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: middle; fill: currentColor" x="74.365917" y="340.596635" transform="rotate(-0 74.365917 340.596635)">0.01</text>
     </g>
    </g>
    <g id="det-xtick_2">
     <g id="det-line2d_3">
      <path d="M 124.575219 325.998979 
L 124.575219 15.329738 
" clip-path="url(#det-p41e1e1f907)" style="fill: none; stroke: #b0b0b0; stroke-opacity: 0.25; stroke-width: 0.8; stroke-linecap: square"/>
     </g>
     <g id="det-line2d_4">
      <g>
       <use xlink:href="#det-m313f432fbe" x="124.575219" y="325.998979" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="det-text_2">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: middle; fill: currentColor" x="124.575219" y="340.596635" transform="rotate(-0 124.575219 340.596635)">0.1</text>
     </g>
    </g>
    <g id="det-xtick_3">
     <g id="det-line2d_5">
      <path d="M 165.651023 325.998979 
L 165.651023 15.329738 
" clip-path="url(#det-p41e1e1f907)" style="fill: none; stroke: #b0b0b0; stroke-opacity: 0.25; stroke-width: 0.8; stroke-linecap: square"/>
     </g>
     <g id="det-line2d_6">
      <g>
       <use xlink:href="#det-m313f432fbe" x="165.651023" y="325.998979" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="det-text_3">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: middle; fill: currentColor" x="165.651023" y="340.596635" transform="rotate(-0 165.651023 340.596635)">0.5</text>
     </g>
    </g>
    <g id="det-xtick_4">
     <g id="det-line2d_7">
      <path d="M 207.339878 325.998979 
L 207.339878 15.329738 
" clip-path="url(#det-p41e1e1f907)" style="fill: none; stroke: #b0b0b0; stroke-opacity: 0.25; stroke-width: 0.8; stroke-linecap: square"/>
     </g>
     <g id="det-line2d_8">
      <g>
       <use xlink:href="#det-m313f432fbe" x="207.339878" y="325.998979" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="det-text_4">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: middle; fill: currentColor" x="207.339878" y="340.596635" transform="rotate(-0 207.339878 340.596635)">2</text>
     </g>
    </g>
    <g id="det-xtick_5">
     <g id="det-line2d_9">
      <path d="M 239.990742 325.998979 
L 239.990742 15.329738 
" clip-path="url(#det-p41e1e1f907)" style="fill: none; stroke: #b0b0b0; stroke-opacity: 0.25; stroke-width: 0.8; stroke-linecap: square"/>
     </g>
     <g id="det-line2d_10">
      <g>
       <use xlink:href="#det-m313f432fbe" x="239.990742" y="325.998979" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="det-text_5">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: middle; fill: currentColor" x="239.990742" y="340.596635" transform="rotate(-0 239.990742 340.596635)">5</text>
     </g>
    </g>
    <g id="det-xtick_6">
     <g id="det-line2d_11">
      <path d="M 269.000923 325.998979 
L 269.000923 15.329738 
" clip-path="url(#det-p41e1e1f907)" style="fill: none; stroke: #b0b0b0; stroke-opacity: 0.25; stroke-width: 0.8; stroke-linecap: square"/>
     </g>
     <g id="det-line2d_12">
      <g>
       <use xlink:href="#det-m313f432fbe" x="269.000923" y="325.998979" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="det-text_6">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: middle; fill: currentColor" x="269.000923" y="340.596635" transform="rotate(-0 269.000923 340.596635)">10</text>
     </g>
    </g>
    <g id="det-xtick_7">
     <g id="det-line2d_13">
      <path d="M 304.12998 325.998979 
L 304.12998 15.329738 
" clip-path="url(#det-p41e1e1f907)" style="fill: none; stroke: #b0b0b0; stroke-opacity: 0.25; stroke-width: 0.8; stroke-linecap: square"/>
     </g>
     <g id="det-line2d_14">
      <g>
       <use xlink:href="#det-m313f432fbe" x="304.12998" y="325.998979" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="det-text_7">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: middle; fill: currentColor" x="304.12998" y="340.596635" transform="rotate(-0 304.12998 340.596635)">20</text>
     </g>
    </g>
    <g id="det-xtick_8">
     <g id="det-line2d_15">
      <path d="M 351.104497 325.998979 
L 351.104497 15.329738 
" clip-path="url(#det-p41e1e1f907)" style="fill: none; stroke: #b0b0b0; stroke-opacity: 0.25; stroke-width: 0.8; stroke-linecap: square"/>
     </g>
     <g id="det-line2d_16">
      <g>
       <use xlink:href="#det-m313f432fbe" x="351.104497" y="325.998979" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="det-text_8">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: middle; fill: currentColor" x="351.104497" y="340.596635" transform="rotate(-0 351.104497 340.596635)">40</text>
     </g>
    </g>
    <g id="det-text_9">
     <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: middle; fill: currentColor" x="216" y="354.597416" transform="rotate(-0 216 354.597416)">false alarms, %</text>
    </g>
   </g>
   <g id="det-matplotlib.axis_2">
    <g id="det-ytick_1">
     <g id="det-line2d_17">
      <path d="M 60.66538 312.298441 
L 371.33462 312.298441 
" clip-path="url(#det-p41e1e1f907)" style="fill: none; stroke: #b0b0b0; stroke-opacity: 0.25; stroke-width: 0.8; stroke-linecap: square"/>
     </g>
     <g id="det-line2d_18">
      <defs>
       <path id="det-m1436cf27ed" d="M 0 0 
L -3.5 0 
" style="stroke: currentColor; stroke-width: 0.8"/>
      </defs>
      <g>
       <use xlink:href="#det-m1436cf27ed" x="60.66538" y="312.298441" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="det-text_10">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: end; fill: currentColor" x="53.66538" y="316.09727" transform="rotate(-0 53.66538 316.09727)">0.01</text>
     </g>
    </g>
    <g id="det-ytick_2">
     <g id="det-line2d_19">
      <path d="M 60.66538 262.089139 
L 371.33462 262.089139 
" clip-path="url(#det-p41e1e1f907)" style="fill: none; stroke: #b0b0b0; stroke-opacity: 0.25; stroke-width: 0.8; stroke-linecap: square"/>
     </g>
     <g id="det-line2d_20">
      <g>
       <use xlink:href="#det-m1436cf27ed" x="60.66538" y="262.089139" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="det-text_11">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: end; fill: currentColor" x="53.66538" y="265.887967" transform="rotate(-0 53.66538 265.887967)">0.1</text>
     </g>
    </g>
    <g id="det-ytick_3">
     <g id="det-line2d_21">
      <path d="M 60.66538 221.013335 
L 371.33462 221.013335 
" clip-path="url(#det-p41e1e1f907)" style="fill: none; stroke: #b0b0b0; stroke-opacity: 0.25; stroke-width: 0.8; stroke-linecap: square"/>
     </g>
     <g id="det-line2d_22">
      <g>
       <use xlink:href="#det-m1436cf27ed" x="60.66538" y="221.013335" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="det-text_12">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: end; fill: currentColor" x="53.66538" y="224.812163" transform="rotate(-0 53.66538 224.812163)">0.5</text>
     </g>
    </g>
    <g id="det-ytick_4">
     <g id="det-line2d_23">
      <path d="M 60.66538 179.324481 
L 371.33462 179.324481 
" clip-path="url(#det-p41e1e1f907)" style="fill: none; stroke: #b0b0b0; stroke-opacity: 0.25; stroke-width: 0.8; stroke-linecap: square"/>
     </g>
     <g id="det-line2d_24">
      <g>
       <use xlink:href="#det-m1436cf27ed" x="60.66538" y="179.324481" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="det-text_13">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: end; fill: currentColor" x="53.66538" y="183.123309" transform="rotate(-0 53.66538 183.123309)">2</text>
     </g>
    </g>
    <g id="det-ytick_5">
     <g id="det-line2d_25">
      <path d="M 60.66538 146.673617 
L 371.33462 146.673617 
" clip-path="url(#det-p41e1e1f907)" style="fill: none; stroke: #b0b0b0; stroke-opacity: 0.25; stroke-width: 0.8; stroke-linecap: square"/>
     </g>
     <g id="det-line2d_26">
      <g>
       <use xlink:href="#det-m1436cf27ed" x="60.66538" y="146.673617" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="det-text_14">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: end; fill: currentColor" x="53.66538" y="150.472445" transform="rotate(-0 53.66538 150.472445)">5</text>
     </g>
    </g>
    <g id="det-ytick_6">
     <g id="det-line2d_27">
      <path d="M 60.66538 117.663435 
L 371.33462 117.663435 
" clip-path="url(#det-p41e1e1f907)" style="fill: none; stroke: #b0b0b0; stroke-opacity: 0.25; stroke-width: 0.8; stroke-linecap: square"/>
     </g>
     <g id="det-line2d_28">
      <g>
       <use xlink:href="#det-m1436cf27ed" x="60.66538" y="117.663435" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="det-text_15">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: end; fill: currentColor" x="53.66538" y="121.462264" transform="rotate(-0 53.66538 121.462264)">10</text>
     </g>
    </g>
    <g id="det-ytick_7">
     <g id="det-line2d_29">
      <path d="M 60.66538 82.534379 
L 371.33462 82.534379 
" clip-path="url(#det-p41e1e1f907)" style="fill: none; stroke: #b0b0b0; stroke-opacity: 0.25; stroke-width: 0.8; stroke-linecap: square"/>
     </g>
     <g id="det-line2d_30">
      <g>
       <use xlink:href="#det-m1436cf27ed" x="60.66538" y="82.534379" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="det-text_16">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: end; fill: currentColor" x="53.66538" y="86.333207" transform="rotate(-0 53.66538 86.333207)">20</text>
     </g>
    </g>
    <g id="det-ytick_8">
     <g id="det-line2d_31">
      <path d="M 60.66538 35.559861 
L 371.33462 35.559861 
" clip-path="url(#det-p41e1e1f907)" style="fill: none; stroke: #b0b0b0; stroke-opacity: 0.25; stroke-width: 0.8; stroke-linecap: square"/>
     </g>
     <g id="det-line2d_32">
      <g>
       <use xlink:href="#det-m1436cf27ed" x="60.66538" y="35.559861" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="det-text_17">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: end; fill: currentColor" x="53.66538" y="39.358689" transform="rotate(-0 53.66538 39.358689)">40</text>
     </g>
    </g>
    <g id="det-text_18">
     <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: middle; fill: currentColor" x="24.997411" y="170.664359" transform="rotate(-90 24.997411 170.664359)">misses, %</text>
    </g>
   </g>
   <g id="det-line2d_33">
    <path d="M 433 281.399105 
L 293.992757 281.399105 
L 293.992757 152.009422 
L 287.383812 152.009422 
L 287.383812 123.906683 
L 261.050065 123.906683 
L 261.050065 105.109729 
L 229.581046 105.109729 
L 229.581046 90.295384 
L 228.739074 90.295384 
L 228.739074 77.696388 
L 211.131238 77.696388 
L 211.131238 66.487892 
L 204.078158 66.487892 
L 204.078158 56.208566 
L 199.124655 56.208566 
L 199.124655 46.56731 
L 191.275549 46.56731 
L 191.275549 37.362424 
L 181.166937 37.362424 
L 181.166937 28.4422 
L 166.588841 28.4422 
L 166.588841 19.683151 
L 161.585645 19.683151 
L 161.585645 10.976326 
L 148.062469 10.976326 
L 148.062469 -1 
L 148.062469 -1 
" clip-path="url(#det-p41e1e1f907)" style="fill: none; stroke: #999999; stroke-width: 1.5; stroke-linecap: square"/>
   </g>
   <g id="det-line2d_34">
    <defs>
     <path id="det-m2e6d736f17" d="M 0 2.5 
C 0.663008 2.5 1.29895 2.236584 1.767767 1.767767 
C 2.236584 1.29895 2.5 0.663008 2.5 0 
C 2.5 -0.663008 2.236584 -1.29895 1.767767 -1.767767 
C 1.29895 -2.236584 0.663008 -2.5 0 -2.5 
C -0.663008 -2.5 -1.29895 -2.236584 -1.767767 -1.767767 
C -2.236584 -1.29895 -2.5 -0.663008 -2.5 0 
C -2.5 0.663008 -2.236584 1.29895 -1.767767 1.767767 
C -1.29895 2.236584 -0.663008 2.5 0 2.5 
z
" style="stroke: #999999"/>
    </defs>
    <g clip-path="url(#det-p41e1e1f907)">
     <use xlink:href="#det-m2e6d736f17" x="261.157661" y="125.506697" style="fill: #999999; stroke: #999999"/>
    </g>
   </g>
   <g id="det-line2d_35">
    <defs>
     <path id="det-m50c5fde637" d="M -3.5 3.5 
L 3.5 -3.5 
M -3.5 -3.5 
L 3.5 3.5 
" style="stroke: #999999"/>
    </defs>
    <g clip-path="url(#det-p41e1e1f907)"/>
   </g>
   <g id="det-line2d_36">
    <path d="M 433 249.791986 
L 311.256638 249.791986 
L 311.256638 152.009422 
L 305.820604 152.009422 
L 305.820604 123.906683 
L 270.346806 123.906683 
L 270.346806 105.109729 
L 228.219324 105.109729 
L 228.219324 77.696388 
L 224.774666 77.696388 
L 224.774666 37.362424 
L 221.033475 37.362424 
L 221.033475 -1 
L 221.033475 -1 
" clip-path="url(#det-p41e1e1f907)" style="fill: none; stroke: #d55e00; stroke-width: 1.5; stroke-linecap: square"/>
   </g>
   <g id="det-line2d_37">
    <defs>
     <path id="det-m6c72e0acd6" d="M 0 2.5 
C 0.663008 2.5 1.29895 2.236584 1.767767 1.767767 
C 2.236584 1.29895 2.5 0.663008 2.5 0 
C 2.5 -0.663008 2.236584 -1.29895 1.767767 -1.767767 
C 1.29895 -2.236584 0.663008 -2.5 0 -2.5 
C -0.663008 -2.5 -1.29895 -2.236584 -1.767767 -1.767767 
C -2.236584 -1.29895 -2.5 -0.663008 -2.5 0 
C -2.5 0.663008 -2.236584 1.29895 -1.767767 1.767767 
C -1.29895 2.236584 -0.663008 2.5 0 2.5 
z
" style="stroke: #d55e00"/>
    </defs>
    <g clip-path="url(#det-p41e1e1f907)">
     <use xlink:href="#det-m6c72e0acd6" x="265.317019" y="121.347339" style="fill: #d55e00; stroke: #d55e00"/>
    </g>
   </g>
   <g id="det-line2d_38">
    <defs>
     <path id="det-m04bd516a81" d="M -3.5 3.5 
L 3.5 -3.5 
M -3.5 -3.5 
L 3.5 3.5 
" style="stroke: #d55e00"/>
    </defs>
    <g clip-path="url(#det-p41e1e1f907)"/>
   </g>
   <g id="det-line2d_39">
    <path d="M 433 225.078714 
L 394.069558 225.078714 
L 394.069558 152.009422 
L 379.978966 152.009422 
L 379.978966 123.906683 
L 353.943113 123.906683 
L 353.943113 105.109729 
L 293.161098 105.109729 
L 293.161098 66.487892 
L 281.1299 66.487892 
L 281.1299 46.56731 
L 274.267374 46.56731 
L 274.267374 37.362424 
L 266.601523 37.362424 
L 266.601523 28.4422 
L 257.826108 28.4422 
L 257.826108 19.683151 
L 241.307669 19.683151 
L 241.307669 10.976326 
L 234.329169 10.976326 
L 234.329169 -1 
L 234.329169 -1 
" clip-path="url(#det-p41e1e1f907)" style="fill: none; stroke: #e69f00; stroke-width: 1.5; stroke-linecap: square"/>
   </g>
   <g id="det-line2d_40">
    <defs>
     <path id="det-m827c773bef" d="M 0 2.5 
C 0.663008 2.5 1.29895 2.236584 1.767767 1.767767 
C 2.236584 1.29895 2.5 0.663008 2.5 0 
C 2.5 -0.663008 2.236584 -1.29895 1.767767 -1.767767 
C 1.29895 -2.236584 0.663008 -2.5 0 -2.5 
C -0.663008 -2.5 -1.29895 -2.236584 -1.767767 -1.767767 
C -2.236584 -1.29895 -2.5 -0.663008 -2.5 0 
C -2.5 0.663008 -2.236584 1.29895 -1.767767 1.767767 
C -1.29895 2.236584 -0.663008 2.5 0 2.5 
z
" style="stroke: #e69f00"/>
    </defs>
    <g clip-path="url(#det-p41e1e1f907)">
     <use xlink:href="#det-m827c773bef" x="290.489981" y="96.174377" style="fill: #e69f00; stroke: #e69f00"/>
    </g>
   </g>
   <g id="det-line2d_41">
    <defs>
     <path id="det-m20e766300a" d="M -3.5 3.5 
L 3.5 -3.5 
M -3.5 -3.5 
L 3.5 3.5 
" style="stroke: #e69f00"/>
    </defs>
    <g clip-path="url(#det-p41e1e1f907)"/>
   </g>
   <g id="det-line2d_42">
    <path d="M 433 288.148972 
L 307.086466 288.148972 
L 307.086466 152.009422 
L 300.365291 152.009422 
L 300.365291 123.906683 
L 274.07238 123.906683 
L 274.07238 105.109729 
L 237.548844 105.109729 
L 237.548844 90.295384 
L 237.029497 90.295384 
L 237.029497 77.696388 
L 226.523033 77.696388 
L 226.523033 66.487892 
L 220.164343 66.487892 
L 220.164343 56.208566 
L 217.814604 56.208566 
L 217.814604 46.56731 
L 212.671417 46.56731 
L 212.671417 37.362424 
L 205.694944 37.362424 
L 205.694944 28.4422 
L 198.508268 28.4422 
L 198.508268 19.683151 
L 192.802527 19.683151 
L 192.802527 10.976326 
L 187.833467 10.976326 
L 187.833467 -1 
L 187.833467 -1 
" clip-path="url(#det-p41e1e1f907)" style="fill: none; stroke: currentColor; stroke-width: 1.5; stroke-linecap: square"/>
   </g>
   <g id="det-line2d_43">
    <defs>
     <path id="det-m7e8a555ead" d="M 0 2.5 
C 0.663008 2.5 1.29895 2.236584 1.767767 1.767767 
C 2.236584 1.29895 2.5 0.663008 2.5 0 
C 2.5 -0.663008 2.236584 -1.29895 1.767767 -1.767767 
C 1.29895 -2.236584 0.663008 -2.5 0 -2.5 
C -0.663008 -2.5 -1.29895 -2.236584 -1.767767 -1.767767 
C -2.236584 -1.29895 -2.5 -0.663008 -2.5 0 
C -2.5 0.663008 -2.236584 1.29895 -1.767767 1.767767 
C -1.29895 2.236584 -0.663008 2.5 0 2.5 
z
" style="stroke: currentColor"/>
    </defs>
    <g clip-path="url(#det-p41e1e1f907)">
     <use xlink:href="#det-m7e8a555ead" x="265.917406" y="120.746952" style="fill: currentColor; stroke: currentColor"/>
    </g>
   </g>
   <g id="det-line2d_44">
    <defs>
     <path id="det-mac894beed1" d="M -3.5 3.5 
L 3.5 -3.5 
M -3.5 -3.5 
L 3.5 3.5 
" style="stroke: currentColor"/>
    </defs>
    <g clip-path="url(#det-p41e1e1f907)"/>
   </g>
   <g id="det-line2d_45">
    <path d="M 60.66538 325.998979 
L 371.33462 15.329738 
" clip-path="url(#det-p41e1e1f907)" style="fill: none; stroke-dasharray: 0.5,0.825; stroke-dashoffset: 0; stroke: currentColor; stroke-width: 0.5"/>
   </g>
   <g id="det-patch_3">
    <path d="M 60.66538 325.998979 
L 60.66538 15.329738 
" style="fill: none; stroke: currentColor; stroke-width: 0.8; stroke-linejoin: miter; stroke-linecap: square"/>
   </g>
   <g id="det-patch_4">
    <path d="M 371.33462 325.998979 
L 371.33462 15.329738 
" style="fill: none; stroke: currentColor; stroke-width: 0.8; stroke-linejoin: miter; stroke-linecap: square"/>
   </g>
   <g id="det-patch_5">
    <path d="M 60.66538 325.998979 
L 371.33462 325.998979 
" style="fill: none; stroke: currentColor; stroke-width: 0.8; stroke-linejoin: miter; stroke-linecap: square"/>
   </g>
   <g id="det-patch_6">
    <path d="M 60.66538 15.329738 
L 371.33462 15.329738 
" style="fill: none; stroke: currentColor; stroke-width: 0.8; stroke-linejoin: miter; stroke-linecap: square"/>
   </g>
   <g id="det-text_19">
    <text style="font-size: 8.33px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: middle; fill: currentColor" x="216" y="9.329738" transform="rotate(-0 216 9.329738)">dot: EER; cross: minDCF default (C_miss=1, C_fa=1, P_target=0.01)</text>
   </g>
   <g id="det-legend_1">
    <g id="det-patch_7">
     <path d="M 66.49638 321.833979 
L 166.132291 321.833979 
Q 167.798291 321.833979 167.798291 320.167979 
L 167.798291 271.018376 
Q 167.798291 269.352376 166.132291 269.352376 
L 66.49638 269.352376 
Q 64.83038 269.352376 64.83038 271.018376 
L 64.83038 320.167979 
Q 64.83038 321.833979 66.49638 321.833979 
L 66.49638 321.833979 
z
" style="fill: none; opacity: 0.4; stroke: #cccccc; stroke-linejoin: miter"/>
    </g>
    <g id="det-line2d_46">
     <path d="M 68.16238 276.098374 
L 76.49238 276.098374 
L 84.82238 276.098374 
" style="fill: none; stroke: #999999; stroke-width: 1.5; stroke-linecap: square"/>
    </g>
    <g id="det-text_20">
     <text style="font-size: 8.33px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: start; fill: currentColor" x="91.48638" y="279.013874" transform="rotate(-0 91.48638 279.013874)">IW: EER 8.38 %</text>
    </g>
    <g id="det-line2d_47">
     <path d="M 68.16238 288.594025 
L 76.49238 288.594025 
L 84.82238 288.594025 
" style="fill: none; stroke: #d55e00; stroke-width: 1.5; stroke-linecap: square"/>
    </g>
    <g id="det-text_21">
     <text style="font-size: 8.33px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: start; fill: currentColor" x="91.48638" y="291.509525" transform="rotate(-0 91.48638 291.509525)">IC: EER 9.21 %</text>
    </g>
    <g id="det-line2d_48">
     <path d="M 68.16238 301.089676 
L 76.49238 301.089676 
L 84.82238 301.089676 
" style="fill: none; stroke: #e69f00; stroke-width: 1.5; stroke-linecap: square"/>
    </g>
    <g id="det-text_22">
     <text style="font-size: 8.33px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: start; fill: currentColor" x="91.48638" y="304.005176" transform="rotate(-0 91.48638 304.005176)">TW: EER 15.57 %</text>
    </g>
    <g id="det-line2d_49">
     <path d="M 68.16238 313.585326 
L 76.49238 313.585326 
L 84.82238 313.585326 
" style="fill: none; stroke: currentColor; stroke-width: 1.5; stroke-linecap: square"/>
    </g>
    <g id="det-text_23">
     <text style="font-size: 8.33px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: start; fill: currentColor" x="91.48638" y="316.500826" transform="rotate(-0 91.48638 316.500826)">Total: EER 9.34 %</text>
    </g>
   </g>
  </g>
 </g>
 <defs>
  <clipPath id="det-p41e1e1f907">
   <rect x="60.66538" y="15.329738" width="310.66924" height="310.66924"/>
  </clipPath>
 </defs>
</svg>
<figcaption>Detection error trade-off: misses against false alarms at every threshold, on probit axes.</figcaption></figure><figure><svg xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 432 360" xmlns="http://www.w3.org/2000/svg" version="1.1">
 <metadata>
  <rdf:RDF xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:cc="http://creativecommons.org/ns#" xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
   <cc:Work>
    <dc:type rdf:resource="http://purl.org/dc/dcmitype/StillImage"/>
    <dc:format>image/svg+xml</dc:format>
   </cc:Work>
  </rdf:RDF>
 </metadata>
 <defs>
  <style type="text/css">*{stroke-linejoin: round; stroke-linecap: butt}</style>
 </defs>
 <g id="histograms-figure_1">
  <g id="histograms-patch_1">
   <path d="M 0 360 
L 432 360 
L 432 0 
L 0 0 
L 0 360 
z
" style="fill: none"/>
  </g>
  <g id="histograms-axes_1">
   <g id="histograms-patch_2">
    <path d="M 39.904146 325.998979 
L 428.99976 325.998979 
L 428.99976 3.00024 
L 39.904146 3.00024 
L 39.904146 325.998979 
z
" style="fill: none; opacity: 0"/>
   </g>
   <g id="histograms-patch_3">
    <path d="M 57.590311 325.998979 
L 57.590311 325.998979 
L 61.564729 325.998979 
L 61.564729 325.998979 
L 65.539148 325.998979 
L 65.539148 325.998979 
L 69.513567 325.998979 
L 69.513567 325.998979 
L 73.487986 325.998979 
L 73.487986 325.998979 
L 77.462405 325.998979 
L 77.462405 325.998979 
L 81.436824 325.998979 
L 81.436824 325.998979 
L 85.411243 325.998979 
L 85.411243 325.998979 
L 89.385662 325.998979 
L 89.385662 325.998979 
L 93.360081 325.998979 
L 93.360081 325.998979 
L 97.3345 325.998979 
L 97.3345 325.998979 
L 101.308919 325.998979 
L 101.308919 325.998979 
L 105.283338 325.998979 
L 105.283338 325.998979 
L 109.257757 325.998979 
L 109.257757 325.998979 
L 113.232176 325.998979 
L 113.232176 325.998979 
L 117.206595 325.998979 
L 117.206595 325.998979 
L 121.181013 325.998979 
L 121.181013 325.998979 
L 125.155432 325.998979 
L 125.155432 325.998979 
L 129.129851 325.998979 
L 129.129851 325.998979 
L 133.10427 325.998979 
L 133.10427 325.998979 
L 137.078689 325.998979 
L 137.078689 325.998979 
L 141.053108 325.998979 
L 141.053108 325.998979 
L 145.027527 325.998979 
L 145.027527 325.998979 
L 149.001946 325.998979 
L 149.001946 325.998979 
L 152.976365 325.998979 
L 152.976365 325.998979 
L 156.950784 325.998979 
L 156.950784 325.998979 
L 160.925203 325.998979 
L 160.925203 325.998979 
L 164.899622 325.998979 
L 164.899622 325.998979 
L 168.874041 325.998979 
L 168.874041 325.998979 
L 172.84846 325.998979 
L 172.84846 325.998979 
L 176.822879 325.998979 
L 176.822879 325.998979 
L 180.797298 325.998979 
L 180.797298 325.998979 
L 184.771716 325.998979 
L 184.771716 325.998979 
L 188.746135 325.998979 
L 188.746135 325.998979 
L 192.720554 325.998979 
L 192.720554 325.998979 
L 196.694973 325.998979 
L 196.694973 325.998979 
L 200.669392 325.998979 
L 200.669392 325.998979 
L 204.643811 325.998979 
L 204.643811 325.998979 
L 208.61823 325.998979 
L 208.61823 325.998979 
L 212.592649 325.998979 
L 212.592649 325.998979 
L 216.567068 325.998979 
L 216.567068 325.998979 
L 220.541487 325.998979 
L 220.541487 325.998979 
L 224.515906 325.998979 
L 224.515906 325.998979 
L 228.490325 325.998979 
L 228.490325 325.998979 
L 232.464744 325.998979 
L 232.464744 325.998979 
L 236.439163 325.998979 
L 236.439163 325.998979 
L 240.413582 325.998979 
L 240.413582 325.998979 
L 244.388 325.998979 
L 244.388 325.998979 
L 248.362419 325.998979 
L 248.362419 325.998979 
L 252.336838 325.998979 
L 252.336838 325.998979 
L 256.311257 325.998979 
L 256.311257 325.998979 
L 260.285676 325.998979 
L 260.285676 325.998979 
L 264.260095 325.998979 
L 264.260095 325.998979 
L 268.234514 325.998979 
L 268.234514 325.998979 
L 272.208933 325.998979 
L 272.208933 325.998979 
L 276.183352 325.998979 
L 276.183352 325.998979 
L 280.157771 325.998979 
L 280.157771 325.998979 
L 284.13219 325.998979 
L 284.13219 325.998979 
L 288.106609 325.998979 
L 288.106609 325.998979 
L 292.081028 325.998979 
L 292.081028 325.998979 
L 296.055447 325.998979 
L 296.055447 325.998979 
L 300.029866 325.998979 
L 300.029866 325.998979 
L 304.004284 325.998979 
L 304.004284 325.998979 
L 307.978703 325.998979 
L 307.978703 325.998979 
L 311.953122 325.998979 
L 311.953122 325.998979 
L 315.927541 325.998979 
L 315.927541 325.998979 
L 319.90196 325.998979 
L 319.90196 325.998979 
L 323.876379 325.998979 
L 323.876379 325.998979 
L 327.850798 325.998979 
L 327.850798 325.998979 
L 331.825217 325.998979 
L 331.825217 325.998979 
L 335.799636 325.998979 
L 335.799636 325.998979 
L 339.774055 325.998979 
L 339.774055 325.998979 
L 343.748474 325.998979 
L 343.748474 325.998979 
L 347.722893 325.998979 
L 347.722893 325.998979 
L 351.697312 325.998979 
L 351.697312 325.998979 
L 355.671731 325.998979 
L 355.671731 325.998979 
L 359.64615 325.998979 
L 359.64615 325.998979 
L 363.620569 325.998979 
L 363.620569 325.998979 
L 367.594987 325.998979 
L 367.594987 325.998979 
L 371.569406 325.998979 
L 371.569406 325.998979 
L 375.543825 325.998979 
L 375.543825 325.998979 
L 379.518244 325.998979 
L 379.518244 295.237194 
L 383.492663 295.237194 
L 383.492663 295.237194 
L 387.467082 295.237194 
L 387.467082 325.998979 
L 391.441501 325.998979 
L 391.441501 295.237194 
L 395.41592 295.237194 
L 395.41592 233.713625 
L 399.390339 233.713625 
L 399.390339 18.381132 
L 403.364758 18.381132 
L 403.364758 202.95184 
L 407.339177 202.95184 
L 407.339177 233.713625 
L 411.313596 233.713625 
L 411.313596 325.998979 
" clip-path="url(#histograms-peb4905e85d)" style="fill: #0072b2; opacity: 0.35"/>
   </g>
   <g id="histograms-patch_4">
    <path d="M 57.590311 325.998979 
L 379.518244 325.998979 
L 379.518244 295.237194 
L 387.467082 295.237194 
L 387.467082 325.998979 
L 391.441501 325.998979 
L 391.441501 295.237194 
L 395.41592 295.237194 
L 395.41592 233.713625 
L 399.390339 233.713625 
L 399.390339 18.381132 
L 403.364758 18.381132 
L 403.364758 202.95184 
L 407.339177 202.95184 
L 407.339177 233.713625 
L 411.313596 233.713625 
L 411.313596 325.998979 
L 411.313596 325.998979 
" clip-path="url(#histograms-peb4905e85d)" style="fill: none; stroke: #0072b2; stroke-linejoin: miter"/>
   </g>
   <g id="histograms-patch_5">
    <path d="M 57.590311 325.998979 
L 57.590311 324.169183 
L 61.564729 324.169183 
L 61.564729 325.998979 
L 65.539148 325.998979 
L 65.539148 325.998979 
L 69.513567 325.998979 
L 69.513567 325.998979 
L 73.487986 325.998979 
L 73.487986 324.779115 
L 77.462405 324.779115 
L 77.462405 325.998979 
L 81.436824 325.998979 
L 81.436824 325.998979 
L 85.411243 325.998979 
L 85.411243 325.998979 
L 89.385662 325.998979 
L 89.385662 325.998979 
L 93.360081 325.998979 
L 93.360081 325.998979 
L 97.3345 325.998979 
L 97.3345 325.998979 
L 101.308919 325.998979 
L 101.308919 325.998979 
L 105.283338 325.998979 
L 105.283338 325.998979 
L 109.257757 325.998979 
L 109.257757 325.998979 
L 113.232176 325.998979 
L 113.232176 325.998979 
L 117.206595 325.998979 
L 117.206595 325.998979 
L 121.181013 325.998979 
L 121.181013 325.998979 
L 125.155432 325.998979 
L 125.155432 324.169183 
L 129.129851 324.169183 
L 129.129851 324.779115 
L 133.10427 324.779115 
L 133.10427 324.779115 
L 137.078689 324.779115 
L 137.078689 325.998979 
L 141.053108 325.998979 
L 141.053108 325.998979 
L 145.027527 325.998979 
L 145.027527 324.779115 
L 149.001946 324.779115 
L 149.001946 325.998979 
L 152.976365 325.998979 
L 152.976365 325.389047 
L 156.950784 325.389047 
L 156.950784 324.779115 
L 160.925203 324.779115 
L 160.925203 324.169183 
L 164.899622 324.169183 
L 164.899622 325.389047 
L 168.874041 325.389047 
L 168.874041 325.389047 
L 172.84846 325.389047 
L 172.84846 325.389047 
L 176.822879 325.389047 
L 176.822879 323.559251 
L 180.797298 323.559251 
L 180.797298 323.559251 
L 184.771716 323.559251 
L 184.771716 322.339387 
L 188.746135 322.339387 
L 188.746135 324.779115 
L 192.720554 324.779115 
L 192.720554 320.509591 
L 196.694973 320.509591 
L 196.694973 322.339387 
L 200.669392 322.339387 
L 200.669392 322.339387 
L 204.643811 322.339387 
L 204.643811 322.339387 
L 208.61823 322.339387 
L 208.61823 324.169183 
L 212.592649 324.169183 
L 212.592649 322.339387 
L 216.567068 322.339387 
L 216.567068 324.169183 
L 220.541487 324.169183 
L 220.541487 322.949319 
L 224.515906 322.949319 
L 224.515906 322.949319 
L 228.490325 322.949319 
L 228.490325 322.949319 
L 232.464744 322.949319 
L 232.464744 318.679796 
L 236.439163 318.679796 
L 236.439163 321.729455 
L 240.413582 321.729455 
L 240.413582 321.729455 
L 244.388 321.729455 
L 244.388 322.949319 
L 248.362419 322.949319 
L 248.362419 319.899659 
L 252.336838 319.899659 
L 252.336838 318.069864 
L 256.311257 318.069864 
L 256.311257 315.630136 
L 260.285676 315.630136 
L 260.285676 318.069864 
L 264.260095 318.069864 
L 264.260095 318.069864 
L 268.234514 318.069864 
L 268.234514 319.289727 
L 272.208933 319.289727 
L 272.208933 315.630136 
L 276.183352 315.630136 
L 276.183352 316.240068 
L 280.157771 316.240068 
L 280.157771 318.679796 
L 284.13219 318.679796 
L 284.13219 314.410272 
L 288.106609 314.410272 
L 288.106609 316.240068 
L 292.081028 316.240068 
L 292.081028 316.240068 
L 296.055447 316.240068 
L 296.055447 319.289727 
L 300.029866 319.289727 
L 300.029866 313.80034 
L 304.004284 313.80034 
L 304.004284 313.80034 
L 307.978703 313.80034 
L 307.978703 310.140748 
L 311.953122 310.140748 
L 311.953122 310.75068 
L 315.927541 310.75068 
L 315.927541 311.970544 
L 319.90196 311.970544 
L 319.90196 306.481157 
L 323.876379 306.481157 
L 323.876379 307.701021 
L 327.850798 307.701021 
L 327.850798 309.530816 
L 331.825217 309.530816 
L 331.825217 311.360612 
L 335.799636 311.360612 
L 335.799636 308.310953 
L 339.774055 308.310953 
L 339.774055 309.530816 
L 343.748474 309.530816 
L 343.748474 302.821565 
L 347.722893 302.821565 
L 347.722893 305.261293 
L 351.697312 305.261293 
L 351.697312 299.771905 
L 355.671731 299.771905 
L 355.671731 301.601701 
L 359.64615 301.601701 
L 359.64615 302.211633 
L 363.620569 302.211633 
L 363.620569 304.041429 
L 367.594987 304.041429 
L 367.594987 305.871225 
L 371.569406 305.871225 
L 371.569406 305.871225 
L 375.543825 305.871225 
L 375.543825 300.381837 
L 379.518244 300.381837 
L 379.518244 299.161974 
L 383.492663 299.161974 
L 383.492663 304.041429 
L 387.467082 304.041429 
L 387.467082 294.89245 
L 391.441501 294.89245 
L 391.441501 305.261293 
L 395.41592 305.261293 
L 395.41592 301.601701 
L 399.390339 301.601701 
L 399.390339 310.75068 
L 403.364758 310.75068 
L 403.364758 325.389047 
L 407.339177 325.389047 
L 407.339177 325.998979 
L 411.313596 325.998979 
L 411.313596 325.998979 
" clip-path="url(#histograms-peb4905e85d)" style="fill: #999999; opacity: 0.35"/>
   </g>
   <g id="histograms-patch_6">
    <path d="M 57.590311 325.998979 
L 57.590311 324.169183 
L 61.564729 324.169183 
L 61.564729 325.998979 
L 73.487986 325.998979 
L 73.487986 324.779115 
L 77.462405 324.779115 
L 77.462405 325.998979 
L 125.155432 325.998979 
L 125.155432 324.169183 
L 129.129851 324.169183 
L 129.129851 324.779115 
L 137.078689 324.779115 
L 137.078689 325.998979 
L 145.027527 325.998979 
L 145.027527 324.779115 
L 149.001946 324.779115 
L 149.001946 325.998979 
L 152.976365 325.998979 
L 152.976365 325.389047 
L 156.950784 325.389047 
L 156.950784 324.779115 
L 160.925203 324.779115 
L 160.925203 324.169183 
L 164.899622 324.169183 
L 164.899622 325.389047 
L 176.822879 325.389047 
L 176.822879 323.559251 
L 184.771716 323.559251 
L 184.771716 322.339387 
L 188.746135 322.339387 
L 188.746135 324.779115 
L 192.720554 324.779115 
L 192.720554 320.509591 
L 196.694973 320.509591 
L 196.694973 322.339387 
L 208.61823 322.339387 
L 208.61823 324.169183 
L 212.592649 324.169183 
L 212.592649 322.339387 
L 216.567068 322.339387 
L 216.567068 324.169183 
L 220.541487 324.169183 
L 220.541487 322.949319 
L 232.464744 322.949319 
L 232.464744 318.679796 
L 236.439163 318.679796 
L 236.439163 321.729455 
L 244.388 321.729455 
L 244.388 322.949319 
L 248.362419 322.949319 
L 248.362419 319.899659 
L 252.336838 319.899659 
L 252.336838 318.069864 
L 256.311257 318.069864 
L 256.311257 315.630136 
L 260.285676 315.630136 
L 260.285676 318.069864 
L 268.234514 318.069864 
L 268.234514 319.289727 
L 272.208933 319.289727 
L 272.208933 315.630136 
L 276.183352 315.630136 
L 276.183352 316.240068 
L 280.157771 316.240068 
L 280.157771 318.679796 
L 284.13219 318.679796 
L 284.13219 314.410272 
L 288.106609 314.410272 
L 288.106609 316.240068 
L 296.055447 316.240068 
L 296.055447 319.289727 
L 300.029866 319.289727 
L 300.029866 313.80034 
L 307.978703 313.80034 
L 307.978703 310.140748 
L 311.953122 310.140748 
L 311.953122 310.75068 
L 315.927541 310.75068 
L 315.927541 311.970544 
L 319.90196 311.970544 
L 319.90196 306.481157 
L 323.876379 306.481157 
L 323.876379 307.701021 
L 327.850798 307.701021 
L 327.850798 309.530816 
L 331.825217 309.530816 
L 331.825217 311.360612 
L 335.799636 311.360612 
L 335.799636 308.310953 
L 339.774055 308.310953 
L 339.774055 309.530816 
L 343.748474 309.530816 
L 343.748474 302.821565 
L 347.722893 302.821565 
L 347.722893 305.261293 
L 351.697312 305.261293 
L 351.697312 299.771905 
L 355.671731 299.771905 
L 355.671731 301.601701 
L 359.64615 301.601701 
L 359.64615 302.211633 
L 363.620569 302.211633 
L 363.620569 304.041429 
L 367.594987 304.041429 
L 367.594987 305.871225 
L 375.543825 305.871225 
L 375.543825 300.381837 
L 379.518244 300.381837 
L 379.518244 299.161974 
L 383.492663 299.161974 
L 383.492663 304.041429 
L 387.467082 304.041429 
L 387.467082 294.89245 
L 391.441501 294.89245 
L 391.441501 305.261293 
L 395.41592 305.261293 
L 395.41592 301.601701 
L 399.390339 301.601701 
L 399.390339 310.75068 
L 403.364758 310.75068 
L 403.364758 325.389047 
L 407.339177 325.389047 
L 407.339177 325.998979 
L 411.313596 325.998979 
L 411.313596 325.998979 
" clip-path="url(#histograms-peb4905e85d)" style="fill: none; stroke: #999999; stroke-linejoin: miter"/>
   </g>
   <g id="histograms-patch_7">
    <path d="M 57.590311 325.998979 
L 57.590311 325.998979 
L 61.564729 325.998979 
L 61.564729 325.998979 
L 65.539148 325.998979 
L 65.539148 325.998979 
L 69.513567 325.998979 
L 69.513567 325.998979 
L 73.487986 325.998979 
L 73.487986 325.998979 
L 77.462405 325.998979 
L 77.462405 325.998979 
L 81.436824 325.998979 
L 81.436824 325.998979 
L 85.411243 325.998979 
L 85.411243 325.998979 
L 89.385662 325.998979 
L 89.385662 325.998979 
L 93.360081 325.998979 
L 93.360081 325.998979 
L 97.3345 325.998979 
L 97.3345 325.998979 
L 101.308919 325.998979 
L 101.308919 325.998979 
L 105.283338 325.998979 
L 105.283338 325.998979 
L 109.257757 325.998979 
L 109.257757 325.998979 
L 113.232176 325.998979 
L 113.232176 325.998979 
L 117.206595 325.998979 
L 117.206595 325.998979 
L 121.181013 325.998979 
L 121.181013 325.998979 
L 125.155432 325.998979 
L 125.155432 325.998979 
L 129.129851 325.998979 
L 129.129851 325.998979 
L 133.10427 325.998979 
L 133.10427 325.998979 
L 137.078689 325.998979 
L 137.078689 325.998979 
L 141.053108 325.998979 
L 141.053108 325.998979 
L 145.027527 325.998979 
L 145.027527 325.998979 
L 149.001946 325.998979 
L 149.001946 325.998979 
L 152.976365 325.998979 
L 152.976365 325.998979 
L 156.950784 325.998979 
L 156.950784 325.998979 
L 160.925203 325.998979 
L 160.925203 325.998979 
L 164.899622 325.998979 
L 164.899622 325.998979 
L 168.874041 325.998979 
L 168.874041 323.64841 
L 172.84846 323.64841 
L 172.84846 325.998979 
L 176.822879 325.998979 
L 176.822879 325.998979 
L 180.797298 325.998979 
L 180.797298 325.998979 
L 184.771716 325.998979 
L 184.771716 323.64841 
L 188.746135 323.64841 
L 188.746135 325.998979 
L 192.720554 325.998979 
L 192.720554 323.64841 
L 196.694973 323.64841 
L 196.694973 325.998979 
L 200.669392 325.998979 
L 200.669392 323.64841 
L 204.643811 323.64841 
L 204.643811 325.998979 
L 208.61823 325.998979 
L 208.61823 325.998979 
L 212.592649 325.998979 
L 212.592649 323.64841 
L 216.567068 323.64841 
L 216.567068 325.998979 
L 220.541487 325.998979 
L 220.541487 325.998979 
L 224.515906 325.998979 
L 224.515906 321.297842 
L 228.490325 321.297842 
L 228.490325 321.297842 
L 232.464744 321.297842 
L 232.464744 325.998979 
L 236.439163 325.998979 
L 236.439163 311.895569 
L 240.413582 311.895569 
L 240.413582 321.297842 
L 244.388 321.297842 
L 244.388 321.297842 
L 248.362419 321.297842 
L 248.362419 325.998979 
L 252.336838 325.998979 
L 252.336838 325.998979 
L 256.311257 325.998979 
L 256.311257 316.596706 
L 260.285676 316.596706 
L 260.285676 321.297842 
L 264.260095 321.297842 
L 264.260095 314.246137 
L 268.234514 314.246137 
L 268.234514 321.297842 
L 272.208933 321.297842 
L 272.208933 314.246137 
L 276.183352 314.246137 
L 276.183352 321.297842 
L 280.157771 321.297842 
L 280.157771 311.895569 
L 284.13219 311.895569 
L 284.13219 321.297842 
L 288.106609 321.297842 
L 288.106609 318.947274 
L 292.081028 318.947274 
L 292.081028 321.297842 
L 296.055447 321.297842 
L 296.055447 304.843864 
L 300.029866 304.843864 
L 300.029866 318.947274 
L 304.004284 318.947274 
L 304.004284 314.246137 
L 307.978703 314.246137 
L 307.978703 314.246137 
L 311.953122 314.246137 
L 311.953122 309.545001 
L 315.927541 309.545001 
L 315.927541 314.246137 
L 319.90196 314.246137 
L 319.90196 314.246137 
L 323.876379 314.246137 
L 323.876379 316.596706 
L 327.850798 316.596706 
L 327.850798 311.895569 
L 331.825217 311.895569 
L 331.825217 307.194433 
L 335.799636 307.194433 
L 335.799636 311.895569 
L 339.774055 311.895569 
L 339.774055 309.545001 
L 343.748474 309.545001 
L 343.748474 307.194433 
L 347.722893 307.194433 
L 347.722893 302.493296 
L 351.697312 302.493296 
L 351.697312 309.545001 
L 355.671731 309.545001 
L 355.671731 297.79216 
L 359.64615 297.79216 
L 359.64615 297.79216 
L 363.620569 297.79216 
L 363.620569 293.091023 
L 367.594987 293.091023 
L 367.594987 304.843864 
L 371.569406 304.843864 
L 371.569406 293.091023 
L 375.543825 293.091023 
L 375.543825 290.740455 
L 379.518244 290.740455 
L 379.518244 302.493296 
L 383.492663 302.493296 
L 383.492663 302.493296 
L 387.467082 302.493296 
L 387.467082 274.286477 
L 391.441501 274.286477 
L 391.441501 290.740455 
L 395.41592 290.740455 
L 395.41592 300.142728 
L 399.390339 300.142728 
L 399.390339 314.246137 
L 403.364758 314.246137 
L 403.364758 314.246137 
L 407.339177 314.246137 
L 407.339177 325.998979 
L 411.313596 325.998979 
L 411.313596 325.998979 
" clip-path="url(#histograms-peb4905e85d)" style="fill: #d55e00; opacity: 0.35"/>
   </g>
   <g id="histograms-patch_8">
    <path d="M 57.590311 325.998979 
L 168.874041 325.998979 
L 168.874041 323.64841 
L 172.84846 323.64841 
L 172.84846 325.998979 
L 184.771716 325.998979 
L 184.771716 323.64841 
L 188.746135 323.64841 
L 188.746135 325.998979 
L 192.720554 325.998979 
L 192.720554 323.64841 
L 196.694973 323.64841 
L 196.694973 325.998979 
L 200.669392 325.998979 
L 200.669392 323.64841 
L 204.643811 323.64841 
L 204.643811 325.998979 
L 212.592649 325.998979 
L 212.592649 323.64841 
L 216.567068 323.64841 
L 216.567068 325.998979 
L 224.515906 325.998979 
L 224.515906 321.297842 
L 232.464744 321.297842 
L 232.464744 325.998979 
L 236.439163 325.998979 
L 236.439163 311.895569 
L 240.413582 311.895569 
L 240.413582 321.297842 
L 248.362419 321.297842 
L 248.362419 325.998979 
L 256.311257 325.998979 
L 256.311257 316.596706 
L 260.285676 316.596706 
L 260.285676 321.297842 
L 264.260095 321.297842 
L 264.260095 314.246137 
L 268.234514 314.246137 
L 268.234514 321.297842 
L 272.208933 321.297842 
L 272.208933 314.246137 
L 276.183352 314.246137 
L 276.183352 321.297842 
L 280.157771 321.297842 
L 280.157771 311.895569 
L 284.13219 311.895569 
L 284.13219 321.297842 
L 288.106609 321.297842 
L 288.106609 318.947274 
L 292.081028 318.947274 
L 292.081028 321.297842 
L 296.055447 321.297842 
L 296.055447 304.843864 
L 300.029866 304.843864 
L 300.029866 318.947274 
L 304.004284 318.947274 
L 304.004284 314.246137 
L 311.953122 314.246137 
L 311.953122 309.545001 
L 315.927541 309.545001 
L 315.927541 314.246137 
L 323.876379 314.246137 
L 323.876379 316.596706 
L 327.850798 316.596706 
L 327.850798 311.895569 
L 331.825217 311.895569 
L 331.825217 307.194433 
L 335.799636 307.194433 
L 335.799636 311.895569 
L 339.774055 311.895569 
L 339.774055 309.545001 
L 343.748474 309.545001 
L 343.748474 307.194433 
L 347.722893 307.194433 
L 347.722893 302.493296 
L 351.697312 302.493296 
L 351.697312 309.545001 
L 355.671731 309.545001 
L 355.671731 297.79216 
L 363.620569 297.79216 
L 363.620569 293.091023 
L 367.594987 293.091023 
L 367.594987 304.843864 
L 371.569406 304.843864 
L 371.569406 293.091023 
L 375.543825 293.091023 
L 375.543825 290.740455 
L 379.518244 290.740455 
L 379.518244 302.493296 
L 387.467082 302.493296 
L 387.467082 274.286477 
L 391.441501 274.286477 
L 391.441501 290.740455 
L 395.41592 290.740455 
L 395.41592 300.142728 
L 399.390339 300.142728 
L 399.390339 314.246137 
L 407.339177 314.246137 
L 407.339177 325.998979 
L 411.313596 325.998979 
L 411.313596 325.998979 
" clip-path="url(#histograms-peb4905e85d)" style="fill: none; stroke: #d55e00; stroke-linejoin: miter"/>
   </g>
   <g id="histograms-patch_9">
    <path d="M 57.590311 325.998979 
L 57.590311 325.998979 
L 61.564729 325.998979 
L 61.564729 325.998979 
L 65.539148 325.998979 
L 65.539148 325.998979 
L 69.513567 325.998979 
L 69.513567 325.998979 
L 73.487986 325.998979 
L 73.487986 325.998979 
L 77.462405 325.998979 
L 77.462405 325.998979 
L 81.436824 325.998979 
L 81.436824 325.998979 
L 85.411243 325.998979 
L 85.411243 325.998979 
L 89.385662 325.998979 
L 89.385662 325.998979 
L 93.360081 325.998979 
L 93.360081 325.998979 
L 97.3345 325.998979 
L 97.3345 325.998979 
L 101.308919 325.998979 
L 101.308919 325.998979 
L 105.283338 325.998979 
L 105.283338 325.998979 
L 109.257757 325.998979 
L 109.257757 325.998979 
L 113.232176 325.998979 
L 113.232176 325.998979 
L 117.206595 325.998979 
L 117.206595 325.998979 
L 121.181013 325.998979 
L 121.181013 325.998979 
L 125.155432 325.998979 
L 125.155432 325.998979 
L 129.129851 325.998979 
L 129.129851 325.998979 
L 133.10427 325.998979 
L 133.10427 325.998979 
L 137.078689 325.998979 
L 137.078689 325.998979 
L 141.053108 325.998979 
L 141.053108 325.998979 
L 145.027527 325.998979 
L 145.027527 325.998979 
L 149.001946 325.998979 
L 149.001946 325.998979 
L 152.976365 325.998979 
L 152.976365 325.998979 
L 156.950784 325.998979 
L 156.950784 325.998979 
L 160.925203 325.998979 
L 160.925203 325.998979 
L 164.899622 325.998979 
L 164.899622 325.998979 
L 168.874041 325.998979 
L 168.874041 325.998979 
L 172.84846 325.998979 
L 172.84846 325.998979 
L 176.822879 325.998979 
L 176.822879 325.998979 
L 180.797298 325.998979 
L 180.797298 325.998979 
L 184.771716 325.998979 
L 184.771716 325.998979 
L 188.746135 325.998979 
L 188.746135 325.998979 
L 192.720554 325.998979 
L 192.720554 325.998979 
L 196.694973 325.998979 
L 196.694973 325.998979 
L 200.669392 325.998979 
L 200.669392 325.998979 
L 204.643811 325.998979 
L 204.643811 325.998979 
L 208.61823 325.998979 
L 208.61823 325.998979 
L 212.592649 325.998979 
L 212.592649 325.998979 
L 216.567068 325.998979 
L 216.567068 325.998979 
L 220.541487 325.998979 
L 220.541487 325.998979 
L 224.515906 325.998979 
L 224.515906 325.998979 
L 228.490325 325.998979 
L 228.490325 325.998979 
L 232.464744 325.998979 
L 232.464744 325.998979 
L 236.439163 325.998979 
L 236.439163 325.998979 
L 240.413582 325.998979 
L 240.413582 325.998979 
L 244.388 325.998979 
L 244.388 325.998979 
L 248.362419 325.998979 
L 248.362419 325.998979 
L 252.336838 325.998979 
L 252.336838 325.998979 
L 256.311257 325.998979 
L 256.311257 325.998979 
L 260.285676 325.998979 
L 260.285676 325.998979 
L 264.260095 325.998979 
L 264.260095 325.998979 
L 268.234514 325.998979 
L 268.234514 325.998979 
L 272.208933 325.998979 
L 272.208933 325.998979 
L 276.183352 325.998979 
L 276.183352 325.998979 
L 280.157771 325.998979 
L 280.157771 325.998979 
L 284.13219 325.998979 
L 284.13219 325.998979 
L 288.106609 325.998979 
L 288.106609 325.998979 
L 292.081028 325.998979 
L 292.081028 325.998979 
L 296.055447 325.998979 
L 296.055447 325.998979 
L 300.029866 325.998979 
L 300.029866 325.998979 
L 304.004284 325.998979 
L 304.004284 325.998979 
L 307.978703 325.998979 
L 307.978703 325.998979 
L 311.953122 325.998979 
L 311.953122 325.998979 
L 315.927541 325.998979 
L 315.927541 325.998979 
L 319.90196 325.998979 
L 319.90196 313.80034 
L 323.876379 313.80034 
L 323.876379 325.998979 
L 327.850798 325.998979 
L 327.850798 325.998979 
L 331.825217 325.998979 
L 331.825217 325.998979 
L 335.799636 325.998979 
L 335.799636 319.899659 
L 339.774055 319.899659 
L 339.774055 325.998979 
L 343.748474 325.998979 
L 343.748474 319.899659 
L 347.722893 319.899659 
L 347.722893 319.899659 
L 351.697312 319.899659 
L 351.697312 301.601701 
L 355.671731 301.601701 
L 355.671731 313.80034 
L 359.64615 313.80034 
L 359.64615 325.998979 
L 363.620569 325.998979 
L 363.620569 307.701021 
L 367.594987 307.701021 
L 367.594987 277.204424 
L 371.569406 277.204424 
L 371.569406 289.403063 
L 375.543825 289.403063 
L 375.543825 265.005785 
L 379.518244 265.005785 
L 379.518244 258.906466 
L 383.492663 258.906466 
L 383.492663 289.403063 
L 387.467082 289.403063 
L 387.467082 265.005785 
L 391.441501 265.005785 
L 391.441501 240.608508 
L 395.41592 240.608508 
L 395.41592 216.21123 
L 399.390339 216.21123 
L 399.390339 228.409869 
L 403.364758 228.409869 
L 403.364758 307.701021 
L 407.339177 307.701021 
L 407.339177 325.998979 
L 411.313596 325.998979 
L 411.313596 325.998979 
" clip-path="url(#histograms-peb4905e85d)" style="fill: #e69f00; opacity: 0.35"/>
   </g>
   <g id="histograms-patch_10">
    <path d="M 57.590311 325.998979 
L 319.90196 325.998979 
L 319.90196 313.80034 
L 323.876379 313.80034 
L 323.876379 325.998979 
L 335.799636 325.998979 
L 335.799636 319.899659 
L 339.774055 319.899659 
L 339.774055 325.998979 
L 343.748474 325.998979 
L 343.748474 319.899659 
L 351.697312 319.899659 
L 351.697312 301.601701 
L 355.671731 301.601701 
L 355.671731 313.80034 
L 359.64615 313.80034 
L 359.64615 325.998979 
L 363.620569 325.998979 
L 363.620569 307.701021 
L 367.594987 307.701021 
L 367.594987 277.204424 
L 371.569406 277.204424 
L 371.569406 289.403063 
L 375.543825 289.403063 
L 375.543825 265.005785 
L 379.518244 265.005785 
L 379.518244 258.906466 
L 383.492663 258.906466 
L 383.492663 289.403063 
L 387.467082 289.403063 
L 387.467082 265.005785 
L 391.441501 265.005785 
L 391.441501 240.608508 
L 395.41592 240.608508 
L 395.41592 216.21123 
L 399.390339 216.21123 
L 399.390339 228.409869 
L 403.364758 228.409869 
L 403.364758 307.701021 
L 407.339177 307.701021 
L 407.339177 325.998979 
L 411.313596 325.998979 
L 411.313596 325.998979 
" clip-path="url(#histograms-peb4905e85d)" style="fill: none; stroke: #e69f00; stroke-linejoin: miter"/>
   </g>
   <g id="histograms-matplotlib.axis_1">
    <g id="histograms-xtick_1">
     <g id="histograms-line2d_1">
      <defs>
       <path id="histograms-m313f432fbe" d="M 0 0 
L 0 3.5 
" style="stroke: currentColor; stroke-width: 0.8"/>
      </defs>
      <g>
       <use xlink:href="#histograms-m313f432fbe" x="85.770106" y="325.998979" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="histograms-text_1">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: middle; fill: currentColor" x="85.770106" y="340.596635" transform="rotate(-0 85.770106 340.596635)">−40</text>
     </g>
    </g>
    <g id="histograms-xtick_2">
     <g id="histograms-line2d_2">
      <g>
       <use xlink:href="#histograms-m313f432fbe" x="161.786412" y="325.998979" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="histograms-text_2">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: middle; fill: currentColor" x="161.786412" y="340.596635" transform="rotate(-0 161.786412 340.596635)">−30</text>
     </g>
    </g>
    <g id="histograms-xtick_3">
     <g id="histograms-line2d_3">
      <g>
       <use xlink:href="#histograms-m313f432fbe" x="237.802717" y="325.998979" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="histograms-text_3">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: middle; fill: currentColor" x="237.802717" y="340.596635" transform="rotate(-0 237.802717 340.596635)">−20</text>
     </g>
    </g>
    <g id="histograms-xtick_4">
     <g id="histograms-line2d_4">
      <g>
       <use xlink:href="#histograms-m313f432fbe" x="313.819023" y="325.998979" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="histograms-text_4">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: middle; fill: currentColor" x="313.819023" y="340.596635" transform="rotate(-0 313.819023 340.596635)">−10</text>
     </g>
    </g>
    <g id="histograms-xtick_5">
     <g id="histograms-line2d_5">
      <g>
       <use xlink:href="#histograms-m313f432fbe" x="389.835329" y="325.998979" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="histograms-text_5">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: middle; fill: currentColor" x="389.835329" y="340.596635" transform="rotate(-0 389.835329 340.596635)">0</text>
     </g>
    </g>
    <g id="histograms-text_6">
     <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: middle; fill: currentColor" x="234.451953" y="354.597416" transform="rotate(-0 234.451953 354.597416)">score (natural-log likelihood ratio)</text>
    </g>
   </g>
   <g id="histograms-matplotlib.axis_2">
    <g id="histograms-ytick_1">
     <g id="histograms-line2d_6">
      <defs>
       <path id="histograms-m1436cf27ed" d="M 0 0 
L -3.5 0 
" style="stroke: currentColor; stroke-width: 0.8"/>
      </defs>
      <g>
       <use xlink:href="#histograms-m1436cf27ed" x="39.904146" y="325.998979" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="histograms-text_7">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: end; fill: currentColor" x="32.904146" y="329.797807" transform="rotate(-0 32.904146 329.797807)">0.0</text>
     </g>
    </g>
    <g id="histograms-ytick_2">
     <g id="histograms-line2d_7">
      <g>
       <use xlink:href="#histograms-m1436cf27ed" x="39.904146" y="255.246874" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="histograms-text_8">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: end; fill: currentColor" x="32.904146" y="259.045702" transform="rotate(-0 32.904146 259.045702)">0.1</text>
     </g>
    </g>
    <g id="histograms-ytick_3">
     <g id="histograms-line2d_8">
      <g>
       <use xlink:href="#histograms-m1436cf27ed" x="39.904146" y="184.494769" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="histograms-text_9">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: end; fill: currentColor" x="32.904146" y="188.293598" transform="rotate(-0 32.904146 188.293598)">0.2</text>
     </g>
    </g>
    <g id="histograms-ytick_4">
     <g id="histograms-line2d_9">
      <g>
       <use xlink:href="#histograms-m1436cf27ed" x="39.904146" y="113.742665" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="histograms-text_10">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: end; fill: currentColor" x="32.904146" y="117.541493" transform="rotate(-0 32.904146 117.541493)">0.3</text>
     </g>
    </g>
    <g id="histograms-ytick_5">
     <g id="histograms-line2d_10">
      <g>
       <use xlink:href="#histograms-m1436cf27ed" x="39.904146" y="42.99056" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="histograms-text_11">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: end; fill: currentColor" x="32.904146" y="46.789388" transform="rotate(-0 32.904146 46.789388)">0.4</text>
     </g>
    </g>
    <g id="histograms-text_12">
     <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: middle; fill: currentColor" x="10.598678" y="164.499609" transform="rotate(-90 10.598678 164.499609)">share of the trials of a kind</text>
    </g>
   </g>
   <g id="histograms-line2d_11">
    <path d="M 389.835329 325.998979 
L 389.835329 3.00024 
" clip-path="url(#histograms-peb4905e85d)" style="fill: none; stroke: currentColor; stroke-width: 0.7; stroke-linecap: square"/>
   </g>
   <g id="histograms-patch_11">
    <path d="M 39.904146 325.998979 
L 39.904146 3.00024 
" style="fill: none; stroke: currentColor; stroke-width: 0.8; stroke-linejoin: miter; stroke-linecap: square"/>
   </g>
   <g id="histograms-patch_12">
    <path d="M 428.99976 325.998979 
L 428.99976 3.00024 
" style="fill: none; stroke: currentColor; stroke-width: 0.8; stroke-linejoin: miter; stroke-linecap: square"/>
   </g>
   <g id="histograms-patch_13">
    <path d="M 39.904146 325.998979 
L 428.99976 325.998979 
" style="fill: none; stroke: currentColor; stroke-width: 0.8; stroke-linejoin: miter; stroke-linecap: square"/>
   </g>
   <g id="histograms-patch_14">
    <path d="M 39.904146 3.00024 
L 428.99976 3.00024 
" style="fill: none; stroke: currentColor; stroke-width: 0.8; stroke-linejoin: miter; stroke-linecap: square"/>
   </g>
   <g id="histograms-legend_1">
    <g id="histograms-patch_15">
     <path d="M 45.735146 59.646843 
L 85.715242 59.646843 
Q 87.381242 59.646843 87.381242 57.980843 
L 87.381242 8.83124 
Q 87.381242 7.16524 85.715242 7.16524 
L 45.735146 7.16524 
Q 44.069146 7.16524 44.069146 8.83124 
L 44.069146 57.980843 
Q 44.069146 59.646843 45.735146 59.646843 
L 45.735146 59.646843 
z
" style="fill: none; opacity: 0.4; stroke: #cccccc; stroke-linejoin: miter"/>
    </g>
    <g id="histograms-patch_16">
     <path d="M 47.401146 16.826738 
L 64.061146 16.826738 
L 64.061146 10.995738 
L 47.401146 10.995738 
z
" style="fill: #0072b2; opacity: 0.35"/>
    </g>
    <g id="histograms-text_13">
     <text style="font-size: 8.33px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: start; fill: currentColor" x="70.725146" y="16.826738" transform="rotate(-0 70.725146 16.826738)">TC</text>
    </g>
    <g id="histograms-patch_17">
     <path d="M 47.401146 29.322389 
L 64.061146 29.322389 
L 64.061146 23.491389 
L 47.401146 23.491389 
z
" style="fill: #999999; opacity: 0.35"/>
    </g>
    <g id="histograms-text_14">
     <text style="font-size: 8.33px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: start; fill: currentColor" x="70.725146" y="29.322389" transform="rotate(-0 70.725146 29.322389)">IW</text>
    </g>
    <g id="histograms-patch_18">
     <path d="M 47.401146 41.81804 
L 64.061146 41.81804 
L 64.061146 35.98704 
L 47.401146 35.98704 
z
" style="fill: #d55e00; opacity: 0.35"/>
    </g>
    <g id="histograms-text_15">
     <text style="font-size: 8.33px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: start; fill: currentColor" x="70.725146" y="41.81804" transform="rotate(-0 70.725146 41.81804)">IC</text>
    </g>
    <g id="histograms-patch_19">
     <path d="M 47.401146 54.313691 
L 64.061146 54.313691 
L 64.061146 48.482691 
L 47.401146 48.482691 
z
" style="fill: #e69f00; opacity: 0.35"/>
    </g>
    <g id="histograms-text_16">
     <text style="font-size: 8.33px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: start; fill: currentColor" x="70.725146" y="54.313691" transform="rotate(-0 70.725146 54.313691)">TW</text>
    </g>
   </g>
  </g>
 </g>
 <defs>
  <clipPath id="histograms-peb4905e85d">
   <rect x="39.904146" y="3.00024" width="389.095614" height="322.998739"/>
  </clipPath>
 </defs>
</svg>
<figcaption>Scores by kind of trial; what lies beyond the axis is in its last bars.</figcaption></figure><figure><svg xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 432 360" xmlns="http://www.w3.org/2000/svg" version="1.1">
 <metadata>
  <rdf:RDF xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:cc="http://creativecommons.org/ns#" xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
   <cc:Work>
    <dc:type rdf:resource="http://purl.org/dc/dcmitype/StillImage"/>
    <dc:format>image/svg+xml</dc:format>
   </cc:Work>
  </rdf:RDF>
 </metadata>
 <defs>
  <style type="text/css">*{stroke-linejoin: round; stroke-linecap: butt}</style>
 </defs>
 <g id="calibration-figure_1">
  <g id="calibration-patch_1">
   <path d="M 0 360 
L 432 360 
L 432 0 
L 0 0 
L 0 360 
z
" style="fill: none"/>
  </g>
  <g id="calibration-axes_1">
   <g id="calibration-patch_2">
    <path d="M 39.904146 325.998979 
L 428.99976 325.998979 
L 428.99976 3.00024 
L 39.904146 3.00024 
L 39.904146 325.998979 
z
" style="fill: none; opacity: 0"/>
   </g>
   <g id="calibration-matplotlib.axis_1">
    <g id="calibration-xtick_1">
     <g id="calibration-line2d_1">
      <defs>
       <path id="calibration-m313f432fbe" d="M 0 0 
L 0 3.5 
" style="stroke: currentColor; stroke-width: 0.8"/>
      </defs>
      <g>
       <use xlink:href="#calibration-m313f432fbe" x="57.590311" y="325.998979" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="calibration-text_1">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: middle; fill: currentColor" x="57.590311" y="340.596635" transform="rotate(-0 57.590311 340.596635)">−10.0</text>
     </g>
    </g>
    <g id="calibration-xtick_2">
     <g id="calibration-line2d_2">
      <g>
       <use xlink:href="#calibration-m313f432fbe" x="101.805721" y="325.998979" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="calibration-text_2">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: middle; fill: currentColor" x="101.805721" y="340.596635" transform="rotate(-0 101.805721 340.596635)">−7.5</text>
     </g>
    </g>
    <g id="calibration-xtick_3">
     <g id="calibration-line2d_3">
      <g>
       <use xlink:href="#calibration-m313f432fbe" x="146.021132" y="325.998979" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="calibration-text_3">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: middle; fill: currentColor" x="146.021132" y="340.596635" transform="rotate(-0 146.021132 340.596635)">−5.0</text>
     </g>
    </g>
    <g id="calibration-xtick_4">
     <g id="calibration-line2d_4">
      <g>
       <use xlink:href="#calibration-m313f432fbe" x="190.236542" y="325.998979" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="calibration-text_4">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: middle; fill: currentColor" x="190.236542" y="340.596635" transform="rotate(-0 190.236542 340.596635)">−2.5</text>
     </g>
    </g>
    <g id="calibration-xtick_5">
     <g id="calibration-line2d_5">
      <g>
       <use xlink:href="#calibration-m313f432fbe" x="234.451953" y="325.998979" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="calibration-text_5">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: middle; fill: currentColor" x="234.451953" y="340.596635" transform="rotate(-0 234.451953 340.596635)">0.0</text>
     </g>
    </g>
    <g id="calibration-xtick_6">
     <g id="calibration-line2d_6">
      <g>
       <use xlink:href="#calibration-m313f432fbe" x="278.667364" y="325.998979" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="calibration-text_6">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: middle; fill: currentColor" x="278.667364" y="340.596635" transform="rotate(-0 278.667364 340.596635)">2.5</text>
     </g>
    </g>
    <g id="calibration-xtick_7">
     <g id="calibration-line2d_7">
      <g>
       <use xlink:href="#calibration-m313f432fbe" x="322.882774" y="325.998979" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="calibration-text_7">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: middle; fill: currentColor" x="322.882774" y="340.596635" transform="rotate(-0 322.882774 340.596635)">5.0</text>
     </g>
    </g>
    <g id="calibration-xtick_8">
     <g id="calibration-line2d_8">
      <g>
       <use xlink:href="#calibration-m313f432fbe" x="367.098185" y="325.998979" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="calibration-text_8">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: middle; fill: currentColor" x="367.098185" y="340.596635" transform="rotate(-0 367.098185 340.596635)">7.5</text>
     </g>
    </g>
    <g id="calibration-xtick_9">
     <g id="calibration-line2d_9">
      <g>
       <use xlink:href="#calibration-m313f432fbe" x="411.313596" y="325.998979" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="calibration-text_9">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: middle; fill: currentColor" x="411.313596" y="340.596635" transform="rotate(-0 411.313596 340.596635)">10.0</text>
     </g>
    </g>
    <g id="calibration-text_10">
     <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: middle; fill: currentColor" x="234.451953" y="354.597416" transform="rotate(-0 234.451953 354.597416)">log prior odds of a target (dotted: prior 0.01)</text>
    </g>
   </g>
   <g id="calibration-matplotlib.axis_2">
    <g id="calibration-ytick_1">
     <g id="calibration-line2d_10">
      <defs>
       <path id="calibration-m1436cf27ed" d="M 0 0 
L -3.5 0 
" style="stroke: currentColor; stroke-width: 0.8"/>
      </defs>
      <g>
       <use xlink:href="#calibration-m1436cf27ed" x="39.904146" y="325.998979" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="calibration-text_11">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: end; fill: currentColor" x="32.904146" y="329.797807" transform="rotate(-0 32.904146 329.797807)">0.0</text>
     </g>
    </g>
    <g id="calibration-ytick_2">
     <g id="calibration-line2d_11">
      <g>
       <use xlink:href="#calibration-m1436cf27ed" x="39.904146" y="267.271935" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="calibration-text_12">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: end; fill: currentColor" x="32.904146" y="271.070763" transform="rotate(-0 32.904146 271.070763)">0.2</text>
     </g>
    </g>
    <g id="calibration-ytick_3">
     <g id="calibration-line2d_12">
      <g>
       <use xlink:href="#calibration-m1436cf27ed" x="39.904146" y="208.544892" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="calibration-text_13">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: end; fill: currentColor" x="32.904146" y="212.34372" transform="rotate(-0 32.904146 212.34372)">0.4</text>
     </g>
    </g>
    <g id="calibration-ytick_4">
     <g id="calibration-line2d_13">
      <g>
       <use xlink:href="#calibration-m1436cf27ed" x="39.904146" y="149.817849" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="calibration-text_14">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: end; fill: currentColor" x="32.904146" y="153.616677" transform="rotate(-0 32.904146 153.616677)">0.6</text>
     </g>
    </g>
    <g id="calibration-ytick_5">
     <g id="calibration-line2d_14">
      <g>
       <use xlink:href="#calibration-m1436cf27ed" x="39.904146" y="91.090805" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="calibration-text_15">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: end; fill: currentColor" x="32.904146" y="94.889633" transform="rotate(-0 32.904146 94.889633)">0.8</text>
     </g>
    </g>
    <g id="calibration-ytick_6">
     <g id="calibration-line2d_15">
      <g>
       <use xlink:href="#calibration-m1436cf27ed" x="39.904146" y="32.363762" style="fill: currentColor; stroke: currentColor; stroke-width: 0.8"/>
      </g>
     </g>
     <g id="calibration-text_16">
      <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: end; fill: currentColor" x="32.904146" y="36.16259" transform="rotate(-0 32.904146 36.16259)">1.0</text>
     </g>
    </g>
    <g id="calibration-text_17">
     <text style="font-size: 10px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: middle; fill: currentColor" x="10.598678" y="164.499609" transform="rotate(-90 10.598678 164.499609)">error / error without scores</text>
    </g>
   </g>
   <g id="calibration-line2d_16">
    <path d="M 57.590311 32.363762 
L 183.162077 32.363762 
L 184.930693 45.13051 
L 188.467926 45.13051 
L 190.236542 57.897259 
L 192.005159 57.897259 
L 193.773775 70.664007 
L 195.542392 70.664007 
L 197.311008 69.143478 
L 199.079625 66.536511 
L 200.848241 91.217887 
L 202.616857 112.719514 
L 204.385474 110.519346 
L 206.15409 157.119784 
L 207.922707 176.634901 
L 209.691323 183.915627 
L 211.45994 216.604025 
L 213.228556 225.073165 
L 214.997172 234.097861 
L 216.765789 244.676806 
L 218.534405 243.733162 
L 220.303022 243.358721 
L 222.071638 240.454029 
L 223.840255 242.575025 
L 225.608871 245.027176 
L 227.377487 244.087949 
L 229.146104 246.227329 
L 230.91472 257.937287 
L 234.451953 258.570793 
L 236.22057 253.651028 
L 237.989186 247.145449 
L 239.757802 241.444935 
L 241.526419 236.144262 
L 243.295035 230.276158 
L 245.063652 247.249259 
L 246.832268 243.126929 
L 248.600885 238.374897 
L 250.369501 232.966102 
L 252.138117 262.877648 
L 253.906734 261.015662 
L 255.67535 258.59508 
L 257.443967 255.057306 
L 259.212583 252.450526 
L 260.9812 249.09895 
L 262.749816 247.423163 
L 264.518432 245.002581 
L 266.287049 242.954396 
L 268.055665 241.09241 
L 269.824282 238.485629 
L 271.592898 237.182239 
L 273.361515 235.506451 
L 275.130131 234.38926 
L 278.667364 229.175699 
L 280.43598 226.941315 
L 282.204597 225.451726 
L 283.973213 223.775939 
L 285.741829 222.472548 
L 287.510446 220.982959 
L 289.279062 218.748576 
L 291.047679 216.88659 
L 292.816295 214.652207 
L 294.584912 213.162618 
L 296.353528 211.859227 
L 298.122144 209.811043 
L 299.890761 207.204262 
L 301.659377 205.156077 
L 303.427994 204.038885 
L 305.19661 202.549297 
L 306.965227 201.245906 
L 308.733843 199.197721 
L 310.502459 196.777139 
L 312.271076 195.101352 
L 314.039692 192.866968 
L 315.808309 190.818784 
L 317.576925 188.5844 
L 319.345542 187.094811 
L 321.114158 185.97762 
L 322.882774 183.370839 
L 324.651391 181.322654 
L 326.420007 179.088271 
L 328.188624 178.529675 
L 329.95724 175.922894 
L 331.725857 174.433306 
L 333.494473 174.060908 
L 335.263089 172.571319 
L 337.031706 170.709333 
L 338.800322 168.102553 
L 340.568939 166.799162 
L 342.337555 164.937176 
L 344.106172 164.006183 
L 345.874788 162.330396 
L 347.643404 161.399402 
L 349.412021 160.096012 
L 351.180637 159.351218 
L 352.949254 157.489231 
L 354.71787 155.999643 
L 356.486487 154.882451 
L 358.255103 153.579061 
L 360.023719 152.834266 
L 361.792336 152.27567 
L 363.560952 151.344677 
L 365.329569 150.599883 
L 367.098185 148.737897 
L 368.866802 147.620705 
L 370.635418 145.944917 
L 372.404034 145.200123 
L 374.172651 143.710534 
L 375.941267 141.848548 
L 377.709884 140.731356 
L 379.4785 140.358959 
L 381.247116 139.241767 
L 383.015733 138.310774 
L 384.784349 136.448788 
L 386.552966 135.145398 
L 388.321582 134.214405 
L 390.090199 133.097213 
L 391.858815 130.676631 
L 393.627431 129.373241 
L 395.396048 128.628446 
L 397.164664 126.952659 
L 398.933281 125.649268 
L 402.470514 123.787282 
L 404.23913 123.042488 
L 407.776363 120.808104 
L 409.544979 119.318515 
L 411.313596 118.387522 
L 411.313596 118.387522 
" clip-path="url(#calibration-peb4905e85d)" style="fill: none; stroke: #d55e00; stroke-width: 1.5; stroke-linecap: square"/>
   </g>
   <g id="calibration-line2d_17">
    <path d="M 57.590311 70.664007 
L 158.401447 70.664007 
L 160.170063 72.063392 
L 161.93868 76.78989 
L 163.707296 81.066602 
L 165.475913 84.936331 
L 167.244529 88.437807 
L 169.013145 91.606073 
L 170.781762 94.472839 
L 172.550378 97.066796 
L 174.318995 99.413906 
L 176.087611 101.537658 
L 177.856227 103.459309 
L 179.624844 105.19809 
L 181.39346 110.766761 
L 186.69931 131.837442 
L 188.467926 138.165188 
L 190.236542 145.053766 
L 192.005159 154.983479 
L 193.773775 163.968255 
L 195.542392 172.098016 
L 199.079625 186.494475 
L 202.616857 204.34247 
L 204.385474 212.274867 
L 206.15409 219.452397 
L 207.922707 225.946895 
L 209.691323 231.823359 
L 211.45994 237.140604 
L 213.228556 241.951846 
L 214.997172 246.305238 
L 216.765789 250.24435 
L 218.534405 253.808606 
L 220.303022 257.033678 
L 222.071638 259.951844 
L 223.840255 262.592309 
L 225.608871 264.981501 
L 227.377487 267.143332 
L 229.146104 269.099437 
L 230.91472 270.869394 
L 232.683337 272.470917 
L 234.451953 273.920035 
L 236.22057 269.891963 
L 237.989186 265.440255 
L 239.757802 264.181038 
L 411.313596 264.181038 
L 411.313596 264.181038 
" clip-path="url(#calibration-peb4905e85d)" style="fill: none; stroke-dasharray: 5.55,2.4; stroke-dashoffset: 0; stroke: #0072b2; stroke-width: 1.5"/>
   </g>
   <g id="calibration-line2d_18">
    <path d="M 39.904146 32.363762 
L 428.99976 32.363762 
" clip-path="url(#calibration-peb4905e85d)" style="fill: none; stroke: currentColor; stroke-width: 0.5; stroke-linecap: square"/>
   </g>
   <g id="calibration-line2d_19">
    <path d="M 153.181909 325.998979 
L 153.181909 3.00024 
" clip-path="url(#calibration-peb4905e85d)" style="fill: none; stroke-dasharray: 0.5,0.825; stroke-dashoffset: 0; stroke: currentColor; stroke-width: 0.5"/>
   </g>
   <g id="calibration-patch_3">
    <path d="M 39.904146 325.998979 
L 39.904146 3.00024 
" style="fill: none; stroke: currentColor; stroke-width: 0.8; stroke-linejoin: miter; stroke-linecap: square"/>
   </g>
   <g id="calibration-patch_4">
    <path d="M 428.99976 325.998979 
L 428.99976 3.00024 
" style="fill: none; stroke: currentColor; stroke-width: 0.8; stroke-linejoin: miter; stroke-linecap: square"/>
   </g>
   <g id="calibration-patch_5">
    <path d="M 39.904146 325.998979 
L 428.99976 325.998979 
" style="fill: none; stroke: currentColor; stroke-width: 0.8; stroke-linejoin: miter; stroke-linecap: square"/>
   </g>
   <g id="calibration-patch_6">
    <path d="M 39.904146 3.00024 
L 428.99976 3.00024 
" style="fill: none; stroke: currentColor; stroke-width: 0.8; stroke-linejoin: miter; stroke-linecap: square"/>
   </g>
   <g id="calibration-legend_1">
    <g id="calibration-patch_7">
     <path d="M 284.721557 321.833979 
L 423.16876 321.833979 
Q 424.83476 321.833979 424.83476 320.167979 
L 424.83476 296.009677 
Q 424.83476 294.343677 423.16876 294.343677 
L 284.721557 294.343677 
Q 283.055557 294.343677 283.055557 296.009677 
L 283.055557 320.167979 
Q 283.055557 321.833979 284.721557 321.833979 
L 284.721557 321.833979 
z
" style="fill: none; opacity: 0.4; stroke: #cccccc; stroke-linejoin: miter"/>
    </g>
    <g id="calibration-line2d_20">
     <path d="M 286.387557 301.089676 
L 294.717557 301.089676 
L 303.047557 301.089676 
" style="fill: none; stroke: #d55e00; stroke-width: 1.5; stroke-linecap: square"/>
    </g>
    <g id="calibration-text_18">
     <text style="font-size: 8.33px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: start; fill: currentColor" x="309.711557" y="304.005176" transform="rotate(-0 309.711557 304.005176)">actual</text>
    </g>
    <g id="calibration-line2d_21">
     <path d="M 286.387557 313.585326 
L 294.717557 313.585326 
L 303.047557 313.585326 
" style="fill: none; stroke-dasharray: 5.55,2.4; stroke-dashoffset: 0; stroke: #0072b2; stroke-width: 1.5"/>
    </g>
    <g id="calibration-text_19">
     <text style="font-size: 8.33px; font-family: 'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif', 'Lucida Grande', 'Verdana', 'Geneva', 'Lucid', 'Arial', 'Helvetica', 'Avant Garde', sans-serif; text-anchor: start; fill: currentColor" x="309.711557" y="316.500826" transform="rotate(-0 309.711557 316.500826)">after the best recalibration</text>
    </g>
   </g>
  </g>
 </g>
 <defs>
  <clipPath id="calibration-peb4905e85d">
   <rect x="39.904146" y="3.00024" width="389.095614" height="322.998739"/>
  </clipPath>
 </defs>
</svg>
<figcaption>Bayes error over the prior: where the curves part, the scores are not calibrated.</figcaption></figure></div></body></html>
